// Models: output, and functions that talk to the recorder. Each run writes the output again, in order with
// all other effects. Output changes nothing that a trace reads, unless Python code of the program's writes
// it: then everything is read again.
#include <optional>
#include <utility>

#include "capture/attributes.h"
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

Flow textModel(CallContext& ctx, Shadow& result);
Flow binaryModel(CallContext& ctx, Shadow& result);

// True if the class has C code under each name that C code asks a stream for when it writes.
bool isWrittenInC(PyTypeObject* type) {
  static PyObject* names[] = {PyUnicode_InternFromString("flush"), PyUnicode_InternFromString("closed")};
  for (PyObject* name : names) {
    PyObject* found = pyapi::lookUpInType(type, name);
    if (found == nullptr || (Py_TYPE(found) != &PyMethodDescr_Type && Py_TYPE(found) != &PyGetSetDescr_Type))
      return false;
  }
  return true;
}

// The stream to which this one writes, read with a guard: a member of its class, or a getter (`buffer` in
// CPython 3.14). Nothing: it is none of these, or there is no such stream.
std::optional<Shadow> streamBelow(RecordContext& rec, Shadow shadow, pyapi::Ref<>& stream, PyObject* name) {
  PyObject* descriptor = pyapi::lookUpInType(Py_TYPE(stream.get()), name);
  const bool getter = descriptor != nullptr && Py_TYPE(descriptor) == &PyGetSetDescr_Type;
  Shadow below;
  if (!getter) {
    const AttributePlan plan = planAttribute(rec, shadow, stream.get(), name);
    if (!rec.live() || plan.how != AttributePlan::kKnown) return std::nullopt;
    below = plan.shadow;
  }
  pyapi::Ref<> found = pyapi::steal(PyObject_GetAttr(stream.get(), name));
  if (!found) {
    PyErr_Clear();
    return std::nullopt;
  }
  if (getter) {
    below = rec.guards.readSource(guard::SourceKind::kGetSet, rec.guards.sourceOf(shadow, stream.get()),
                                  descriptor, 0, found.get());
  }
  stream = std::move(found);
  return rec.live() ? std::optional(below) : std::nullopt;
}

// True if C code alone writes what the stream is given, down to the file. Adds the guards that say so.
bool writesInC(RecordContext& rec, Shadow shadow, PyObject* stream) {
  static PyObject* write = PyUnicode_InternFromString("write");
  static PyObject* buffer = PyUnicode_InternFromString("buffer");
  static PyObject* raw = PyUnicode_InternFromString("raw");
  constexpr int kLevels = 3;  // text, buffer, file
  pyapi::Ref<> kept = pyapi::newRef(stream);
  for (int level = 0; level < kLevels; ++level) {
    if (!shadow.isSource() || !isWrittenInC(Py_TYPE(kept.get()))) return false;
    rec.guards.guardType(shadow, kept.get());
    rec.guards.guardTypeVersion(Py_TYPE(kept.get()));
    const AttributePlan method = planAttribute(rec, shadow, kept.get(), write);
    if (!rec.live() || method.how != AttributePlan::kMethod) return false;
    const CallModel model = modelOf(method.function);
    if (model == knownModel) return true;  // nothing is below
    if (model != textModel && model != binaryModel) return false;
    const auto below = streamBelow(rec, shadow, kept, model == textModel ? buffer : raw);
    if (!below) return false;
    shadow = *below;
  }
  return false;
}

Flow writeModel(CallContext& ctx, Shadow& result) {
  const bool known = writesInC(ctx.rec, ctx.shadows[0], ctx.args[0]);
  if (!ctx.rec.live()) return run(ctx);
  return known ? knownModel(ctx, result) : outputModel(ctx, result);
}
Flow textModel(CallContext& ctx, Shadow& result) { return writeModel(ctx, result); }
Flow binaryModel(CallContext& ctx, Shadow& result) { return writeModel(ctx, result); }

// True if str() of the object runs no code other than CPython's and torch's.
bool printsPlainly(PyObject* object) {
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      PyObject* part = PyTuple_CheckExact(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
      if (!printsPlainly(part)) return false;
    }
    return true;
  }
  if (torchapi::isTensor(object)) return torchapi::isExactTensorType(Py_TYPE(object));
  return PyUnicode_CheckExact(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyBool_Check(object) || object == Py_None || PyComplex_CheckExact(object) ||
         PyBytes_CheckExact(object) || isPlainDeep(object);
}

// True if C code alone writes what print() prints: `file`, or what `sys.stdout` is.
bool printsInC(CallContext& ctx) {
  RecordContext& rec = ctx.rec;
  if (const auto at = ctx.keyword("file")) {
    if (ctx.args.any(*at) != Py_None) return writesInC(rec, ctx.shadows.any(*at), ctx.args.any(*at));
    if (!rec.guards.pinIsNone(ctx.shadows.any(*at), ctx.args.any(*at))) return false;
  }
  static PyObject* name = PyUnicode_InternFromString("stdout");
  PyObject* sys = PyImport_AddModule("sys");
  PyObject* dict = sys == nullptr ? nullptr : PyModule_GetDict(sys);
  PyObject* stream = dict == nullptr ? nullptr : PyDict_GetItemWithError(dict, name);
  if (stream == nullptr) {
    PyErr_Clear();
    return false;
  }
  const Shadow shadow = rec.objects.dictEntry(rec.guards.pinnedRoot(dict), dict, name, stream);
  if (!rec.live()) return false;
  return stream == Py_None ? rec.guards.pinIsNone(shadow, stream) : writesInC(rec, shadow, stream);
}

// print() reads its arguments and writes text. So it may run after tensor operations that follow it, unless
// these write to its arguments.
Flow printModel(CallContext& ctx, Shadow& result) {
  bool plain = true;
  for (size_t i = 0; i < ctx.total(); ++i) plain = plain && printsPlainly(ctx.args.any(i));
  RecordContext& rec = ctx.rec;
  const bool known = printsInC(ctx);
  if (!rec.live()) return run(ctx);
  if (!known) return outputModel(ctx, result);
  size_t before = rec.trace().code.size();
  Flow flow = knownModel(ctx, result);
  auto& code = rec.trace().code;
  if (flow == Flow::kNext && rec.live() && code.size() > before && code.back().op == ir::Op::kCallKnown)
    code.back().deferrable = plain;
  return flow;
}

constexpr ModelRow kRows[] = {
    {"builtins.print", printModel, kWritesProcess.runsAnyPython().gives("None").raises("AttributeError")},
    {"_io.TextIOWrapper.write", textModel, Facts{}.runsAnyPython().raises("ValueError OSError").gives("int")},
    {"_io.TextIOWrapper.flush", textModel,
     Facts{}.runsAnyPython().raises("ValueError OSError").gives("None")},
    {"_io.BufferedWriter.write", binaryModel,
     Facts{}.runsAnyPython().raises("ValueError OSError").gives("int")},
    {"_io.BufferedWriter.flush", binaryModel,
     Facts{}.runsAnyPython().raises("ValueError OSError").gives("None")},
    {"_io.BufferedRandom.write", binaryModel,
     Facts{}.runsAnyPython().raises("ValueError OSError").gives("int")},
    {"_io.FileIO.write", knownModel, gives("int None")},
    {"_io.BytesIO.write", knownModel, gives("int")},
    {"_io.StringIO", knownModel, gives("_io.StringIO").raises("ValueError")},
    {"_io.StringIO.write", knownModel, gives("int")},
    {"_io.StringIO.getvalue", knownModel, gives("str").runsNoPython()},
    {"_io.StringIO.seek", knownModel, gives("int")},
    {"_io.StringIO.tell", knownModel, gives("int").runsNoPython()},
    {"_io.StringIO.read", knownModel, gives("str")},
    {"_io.StringIO.truncate", knownModel, gives("int").raises("ValueError")},
    // Tells the recording whether breaks are errors. A run has nothing to do.
    {"kintsugi._C.set_error_on_graph_break", constantModel,
     Facts{.state = StateWord::kArguments, .writes = Writes::kProcess}.gives("None bool").runsNoPython()},
};

}  // namespace

void registerOutputModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
