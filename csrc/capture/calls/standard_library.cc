// C functions of the standard library that compute, or that change only the object that they belong to. They
// are steps after which everything is still known. If an argument could run code of the program, the call is
// an opaque step.
#include <string_view>

#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "pyapi/functions.h"

namespace kintsugi::capture {

namespace {

bool isBytes(PyObject* object) { return PyBytes_CheckExact(object) || PyByteArray_CheckExact(object); }

// `first` is the first argument through which code of the program could be reached.
Flow plainStep(CallContext& ctx, size_t first, Shadow& result) {
  bool plain = true;
  for (size_t i = first; i < ctx.total(); ++i) {
    plain = plain && (isPlainDeep(ctx.args.any(i)) || isBytes(ctx.args.any(i)));
  }
  return plain ? knownModel(ctx, result) : opaqueModel(ctx, result);
}

Flow functionModel(CallContext& ctx, Shadow& result) { return plainStep(ctx, 0, result); }
Flow methodModel(CallContext& ctx, Shadow& result) { return plainStep(ctx, 1, result); }

// True if the object and its parts have exact built-in types, which are the same in every run.
bool hasFixedTypes(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (shadow.isConst()) return isPlainDeep(object);
  if (shadow.isSource()) {
    if (!isPlain(object)) return false;
    rec.guards.guardType(shadow, object);
    return rec.live();
  }
  if (shadow.isValue()) return PyLong_Check(object) || PyFloat_CheckExact(object);
  if (!shadow.isVirtual()) return false;
  Virtual& v = rec.objects.virtualOf(shadow);
  if (v.kind == VirtualKind::kDict && PyDict_CheckExact(object) && !v.shared) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value) != 0) {
      const auto part = rec.objects.entryOf(v, key);
      if (!part || !isPlainDeep(key) || !hasFixedTypes(rec, *part, value)) return false;
    }
    return true;
  }
  const bool list = v.kind == VirtualKind::kList && PyList_CheckExact(object);
  const bool tuple = v.kind == VirtualKind::kTuple && PyTuple_CheckExact(object);
  if ((!list && !tuple) || v.parts.size() != static_cast<size_t>(Py_SIZE(object))) return false;
  PyObject** items = PySequence_Fast_ITEMS(object);
  for (size_t i = 0; i < v.parts.size(); ++i) {
    if (!hasFixedTypes(rec, v.parts[i], items[i])) return false;
  }
  return true;
}

constexpr size_t kEncoderMarkers = 0, kEncoderTexts = 2, kEncoderArguments = 9;

// Makes json's encoder in C, from its settings: (markers, default, encoder of strings, indent, ...).
Flow jsonEncoderModel(CallContext& ctx, Shadow& result) {
  bool plain = ctx.positional == kEncoderArguments && ctx.kwnames == nullptr &&
               PyCFunction_Check(ctx.args[kEncoderTexts]) &&
               (ctx.args[kEncoderMarkers] == Py_None || PyDict_CheckExact(ctx.args[kEncoderMarkers]));
  for (size_t i = kEncoderTexts + 1; plain && i < kEncoderArguments; ++i) plain = isPlain(ctx.args.any(i));
  Shadow texts = plain ? ctx.shadows[kEncoderTexts] : Shadow::null();
  if (!plain || !ctx.rec.guards.tryPinDeep(texts, ctx.args[kEncoderTexts]))
    return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  return keepModel(ctx, result);
}

// `encoder(object, level)`, where the trace has made the encoder. The object's parts decide whether Python
// code is called.
Flow jsonEncodeModel(CallContext& ctx, Shadow& result) {
  const bool known = ctx.total() == 3 && ctx.kwnames == nullptr &&
                     ctx.rec.guards.comesFromStep(ctx.shadows[0]) && isPlain(ctx.args[2]);
  pyapi::Ref<> texts = known ? pyapi::steal(PyObject_GetAttrString(ctx.args[0], "encoder")) : pyapi::Ref<>();
  PyErr_Clear();
  const bool plain =
      texts && PyCFunction_Check(texts.get()) && hasFixedTypes(ctx.rec, ctx.shadows[1], ctx.args[1]);
  if (!ctx.rec.live()) return run(ctx);
  return plain ? knownModel(ctx, result) : opaqueModel(ctx, result);
}

// True if the bound method is this C method of the class.
bool isMethodOf(PyTypeObject* type, const char* name, PyObject* bound) {
  PyObject* method = specialMethod(type, name);
  return method != nullptr && Py_TYPE(method) == &PyMethodDescr_Type &&
         pyapi::methodDefinitionOf(method) == pyapi::definitionOf(bound);
}

// True if a JSON scanner calls only the constructors of numbers and its table of constants.
bool scansByItself(PyObject* scanner) {
  for (const char* name :
       {"object_hook", "object_pairs_hook", "parse_float", "parse_int", "parse_constant"}) {
    pyapi::Ref<> setting = pyapi::steal(PyObject_GetAttrString(scanner, name));
    PyErr_Clear();
    if (!setting) return false;
    const bool table = PyCFunction_Check(setting.get()) && PyCFunction_GET_SELF(setting.get()) != nullptr &&
                       PyDict_CheckExact(PyCFunction_GET_SELF(setting.get())) &&
                       isMethodOf(&PyDict_Type, "__getitem__", setting.get());
    if (setting.get() != Py_None && !table && setting.get() != reinterpret_cast<PyObject*>(&PyFloat_Type) &&
        setting.get() != reinterpret_cast<PyObject*>(&PyLong_Type))
      return false;
  }
  return true;
}

// `scanner(text, index)`.
Flow jsonScanModel(CallContext& ctx, Shadow& result) {
  const bool plain = ctx.total() == 3 && ctx.kwnames == nullptr && PyUnicode_CheckExact(ctx.args[1]) &&
                     !ctx.rec.guards.comesFromStep(ctx.shadows[0]) && scansByItself(ctx.args[0]);
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  if (!plain || !ctx.rec.guards.pin(shadows[0], ctx.args[0]))
    return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  ctx.shadows.replace(shadows.data());
  return knownModel(ctx, result);
}

// A module that is imported already is found without looking for files.
Flow findSpecModel(CallContext& ctx, Shadow& result) {
  const bool imported = ctx.total() == 1 && PyUnicode_CheckExact(ctx.args[0]) &&
                        PyDict_GetItemWithError(PyImport_GetModuleDict(), ctx.args[0]) != nullptr;
  return imported ? inlineFunction(ctx, result) : opaqueModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    // Python code that looks for files. It decides on names in folders, thousands of them, which each call
    // would have to compare.
    {"importlib.util.find_spec", findSpecModel,
     gives("_frozen_importlib.ModuleSpec None").raises("AttributeError")},
    {"importlib.metadata.version", opaqueModel,
     gives("str").raises("RuntimeError ValueError importlib.metadata.PackageNotFoundError")},
    {"importlib.metadata.metadata", opaqueModel,
     gives("any: what the finder of the package gives")
         .raises("RuntimeError ValueError importlib.metadata.PackageNotFoundError")},
    {"importlib.metadata.distribution", opaqueModel,
     gives("any: what the finder of the package gives")
         .raises("RuntimeError ValueError importlib.metadata.PackageNotFoundError")},
    {"importlib.metadata.entry_points", opaqueModel,
     gives("importlib.metadata.EntryPoints importlib.metadata.SelectableGroups").raises("AttributeError")},
    {"importlib.metadata.requires", opaqueModel,
     gives("list None").raises("RuntimeError ValueError importlib.metadata.PackageNotFoundError")},
    {"importlib.metadata.files", opaqueModel,
     gives("list None").raises("RuntimeError ValueError importlib.metadata.PackageNotFoundError")},
    // C functions.
    {"_json.encode_basestring", foldModel, gives("str").runsNoPython()},
    {"_json.encode_basestring_ascii", foldModel, gives("str").runsNoPython()},
    {"_json.make_scanner.__call__", jsonScanModel, gives(kAnItem)},
    {"_json.make_encoder", jsonEncoderModel, gives("_json.Encoder")},
    {"_json.make_encoder.__call__", jsonEncodeModel, gives("tuple")},
    {"_random.Random.random", methodModel, gives("float").runsNoPython()},
    {"_random.Random.getrandbits", methodModel, gives("int")},
    {"_random.Random.seed", methodModel, gives("None")},
    {"_random.Random.getstate", methodModel, gives("tuple").runsNoPython()},
    {"_random.Random.setstate", methodModel, gives("None")},
    {"_struct.pack", functionModel, gives("bytes").raises("struct.error")},
    {"_struct.unpack", functionModel, gives(kAnItem).raises("struct.error")},
    {"_struct.unpack_from", functionModel, gives("tuple").raises("struct.error")},
    {"_struct.calcsize", functionModel, gives("int").raises("struct.error")},
    {"_struct.Struct.pack", methodModel, gives("bytes").raises("struct.error")},
    {"_struct.Struct.unpack", methodModel, gives("tuple")},
    {"binascii.*", functionModel, gives("bytes int").raises("RuntimeError ValueError binascii.Error")},
    {"cmath.*", foldModel, gives("bool complex float tuple").raises("OverflowError ValueError")},
    {"unicodedata.*", foldModel,
     gives("None argument bool bytes complex float frozenset int str tuple").raises("KeyError ValueError")},
    {"_io.BytesIO", functionModel, gives("_io.BytesIO")},
    {"_io.BytesIO.read", methodModel, gives("bytes")},
    {"_io.BytesIO.readline", methodModel, gives("bytes")},
    {"_io.BytesIO.seek", methodModel, gives("int")},
    {"_io.BytesIO.tell", methodModel, gives("int").runsNoPython()},
    {"_io.BytesIO.truncate", methodModel, gives("int").raises("ValueError")},
    {"_io.BytesIO.getvalue", methodModel, gives("bytes").runsNoPython()},
    {"_hashlib.openssl_md5", functionModel, gives("_hashlib.HASH")},
    {"_hashlib.openssl_sha1", functionModel, gives("_hashlib.HASH")},
    {"_hashlib.openssl_sha256", functionModel, gives("_hashlib.HASH").raises("RuntimeError")},
    {"_hashlib.openssl_sha512", functionModel, gives("_hashlib.HASH")},
    {"_hashlib.HASH.update", methodModel, gives("None")},
    {"_hashlib.HASH.digest", methodModel, gives("bytes").runsNoPython()},
    {"_hashlib.HASH.hexdigest", methodModel, gives("str").runsNoPython()},
    {"posix.getpid", functionModel, kReadsWorld.gives("int").runsNoPython()},
    {"posix.getcwd", functionModel, kReadsProcess.gives("str").runsNoPython()},
    {"posix.urandom", functionModel, kReadsWorld.gives("bytes").raises("OverflowError ValueError")},
    {"posix.cpu_count", functionModel, gives("int").runsNoPython()},
    {"posix.fspath", functionModel, gives("argument bytes str")},
    {"posix._path_normpath", foldModel, gives("argument bytes str")},
    {"posix.stat", functionModel,
     kReadsProcess.gives("os.stat_result")
         .raises("FileNotFoundError OSError OverflowError RuntimeError ValueError")},
    {"time.process_time", functionModel, kReadsWorld.gives("float").runsNoPython()},
    {"time.process_time_ns", functionModel, kReadsWorld.gives("int").runsNoPython()},
    {"time.thread_time", functionModel, kReadsWorld.gives("float").runsNoPython()},
    {"time.monotonic_ns", functionModel, kReadsWorld.gives("int").runsNoPython()},
    {"time.localtime", functionModel, kReadsWorld.gives("time.struct_time").raises("OverflowError")},
    {"time.gmtime", functionModel, kReadsWorld.gives("time.struct_time").raises("OverflowError")},
    {"time.strftime", functionModel, kReadsWorld.gives("str")},
    {"_thread.allocate_lock", functionModel, gives("_thread.lock").runsNoPython()},
    {"_thread.get_ident", functionModel, kReadsWorld.gives("int").runsNoPython()},
    {"_thread.get_native_id", functionModel, kReadsWorld.gives("int").runsNoPython()},
    {"sys.is_finalizing", functionModel, gives("bool").runsNoPython()},
    {"sys.getrecursionlimit", functionModel, kReadsProcess.gives("int").runsNoPython()},
    // The result of reading a lazy_property from the class instead of an instance.
    {"torch.distributions.utils._lazy_property_and_property", knownModel, gives(kAnItem)},
};

}  // namespace

void registerStandardLibraryModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
