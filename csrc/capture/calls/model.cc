#include "capture/calls/model.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "capture/calls/inner_code.h"
#include "capture/calls/table.h"
#include "capture/numbers.h"
#include "capture/shown.h"
#include "pyapi/code.h"
#include "pyapi/functions.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/plain.h"
#include "pyapi/slices.h"
#include "pyapi/types.h"
#include "support/check.h"

namespace kintsugi::capture {

namespace {

// callable -> index of its row in entries().
std::unordered_map<PyObject*, size_t>& table() {
  static auto* rows = new std::unordered_map<PyObject*, size_t>();
  return *rows;
}

std::deque<ModelEntry>& entries() {
  static auto* all = new std::deque<ModelEntry>();
  return *all;
}

// Names a row. Two threads may register all rows at the same time (see pyapi/lazy.h); a row counts once.
struct RowKey {
  std::string_view callable;
  CallModel model;
  bool operator==(const RowKey&) const = default;
};
struct RowHash {
  size_t operator()(const RowKey& key) const { return std::hash<std::string_view>()(key.callable); }
};

// The names are those of entries().
std::unordered_set<RowKey, RowHash>& seenRows() {
  static auto* rows = new std::unordered_set<RowKey, RowHash>();
  return *rows;
}

// An attribute of a module, class or other object. Imports nothing; no `__getattr__` of a module runs.
pyapi::Ref<> attributeOf(PyObject* owner, const std::string& name) {
  const pyapi::Ref<> key = pyapi::steal(PyUnicode_FromString(name.c_str()));
  PyObject* found = nullptr;
  if (PyType_Check(owner)) {
    found = Py_XNewRef(pyapi::lookUpInType(reinterpret_cast<PyTypeObject*>(owner), key.get()));
    if (found != nullptr && Py_TYPE(found) == &PyStaticMethod_Type) {
      Py_DECREF(found);
      found = PyObject_GetAttr(owner, key.get());
    }
  } else if (PyModule_Check(owner)) {
    found = Py_XNewRef(PyDict_GetItemWithError(PyModule_GetDict(owner), key.get()));
  } else {
    found = PyObject_GetAttr(owner, key.get());
  }
  // pybind puts C functions into classes like this.
  if (found != nullptr && PyInstanceMethod_Check(found)) {
    PyObject* inner = Py_NewRef(PyInstanceMethod_GET_FUNCTION(found));
    Py_DECREF(found);
    found = inner;
  }
  PyErr_Clear();
  return pyapi::steal(found);
}

// Finds objects by paths such as "torch.nn.functional.relu": the longest prefix that is an imported module,
// then attributes. Rows of one owner stand together, so the last owner is kept. Imports nothing. An object
// lives for one look at rows: modules may be imported or replaced afterwards.
class PathFinder {
 public:
  pyapi::Ref<> find(const std::string& path) {
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) return moduleAt(path);
    PyObject* owner = ownerAt(path.substr(0, dot));
    return owner != nullptr ? attributeOf(owner, path.substr(dot + 1)) : pyapi::Ref<>();
  }

 private:
  static pyapi::Ref<> moduleAt(const std::string& path) {
    return pyapi::newRef(PyDict_GetItemString(PyImport_GetModuleDict(), path.c_str()));
  }

  PyObject* ownerAt(const std::string& path) {
    if (path != ownerPath_) {
      pyapi::Ref<> owner = moduleAt(path);
      if (!owner && path.find('.') != std::string::npos) owner = find(path);
      ownerPath_ = path;
      owner_ = std::move(owner);
    }
    return owner_.get();
  }

  std::string ownerPath_;
  pyapi::Ref<> owner_;  // null: there is none
};

void addAll(PyObject* owner, size_t row) {
  PyObject* dict =
      PyType_Check(owner) ? pyapi::dictOf(reinterpret_cast<PyTypeObject*>(owner)) : PyModule_GetDict(owner);
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (PyCFunction_Check(value) || pyapi::isMethodLike(value)) {
      if (PyFunction_Check(value)) continue;
      table().try_emplace(Py_NewRef(value), row);
      entries()[row].objects.push_back(pyapi::newRef(value));
    }
  }
}

// If torch was built without some device, a class may have the name of a C function; its `__new__` in Python
// raises. The row does not describe that code.
bool standsForMissing(PyObject* object) {
  if (!PyType_Check(object)) return false;
  PyObject* made = PyDict_GetItemString(pyapi::dictOf(reinterpret_cast<PyTypeObject*>(object)), "__new__");
  return made != nullptr && Py_IS_TYPE(made, &PyStaticMethod_Type);  // C classes have no static method there
}

// Finds the objects that the row names, as far as their module is imported.
void findObjects(size_t row, PathFinder& paths) {
  std::string path = entries()[row].callable;
  const bool all = path.ends_with(".*");
  if (all) path.resize(path.size() - 2);
  const pyapi::Ref<> object = paths.find(path);
  if (!object || object.get() == Py_None || standsForMissing(object.get())) return;
  if (all) {
    addAll(object.get(), row);
  } else {
    table().insert_or_assign(Py_NewRef(object.get()), row);
    entries()[row].objects.push_back(object.clone());
  }
}

// Finds the objects of rows whose modules the program has imported since the last look.
void findMissing() {
  static Py_ssize_t modules = 0;
  const Py_ssize_t now = PyDict_GET_SIZE(PyImport_GetModuleDict());
  if (std::exchange(modules, now) == now) return;
  PathFinder paths;
  for (size_t row = 0; row < entries().size(); ++row) {
    if (entries()[row].objects.empty()) findObjects(row, paths);
  }
}

}  // namespace

void addModels(const ModelRow* rows, size_t count) {
  PathFinder paths;
  for (size_t i = 0; i < count; ++i) {
    if (seenRows().contains({rows[i].callable, rows[i].model})) continue;
    KINTSUGI_CHECK(rows[i].callable != nullptr && rows[i].model != nullptr, "row ", i, " is not complete");
    const char* wrong = contradictionOf(rows[i]);
    KINTSUGI_CHECK(wrong == nullptr, rows[i].callable, ": ", wrong == nullptr ? "" : wrong);
    const ModelEntry& entry =
        entries().emplace_back(ModelEntry{rows[i].callable, {}, rows[i].model, rows[i].facts});
    seenRows().insert({entry.callable, entry.model});
    findObjects(entries().size() - 1, paths);
  }
}

const char* truthFunction(PyObject* object) {
  if (specialMethod(Py_TYPE(object), "__bool__") != nullptr)
    return pythonMethod(object, "__bool__") != nullptr ? "says_true" : nullptr;
  return pythonMethod(object, "__len__") != nullptr ? "has_length" : nullptr;
}

const std::deque<ModelEntry>& modelEntries() {
  modelOf(Py_None);  // also looks for what was imported since
  return entries();
}

bool waitsForProcesses(PyObject* callable) {
  const ModelEntry* entry = entryOf(callable);
  return entry != nullptr && entry->facts.writes == Writes::kOtherProcesses;
}

const char* kindOf(CallModel model) {
  static constexpr std::pair<CallModel, const char*> kKinds[] = {
      {foldModel, "fold"},   {arithmeticModel, "arithmetic"}, {constantModel, "constant"},
      {knownModel, "known"}, {blockingModel, "blocking"},     {opaqueModel, "opaque"},
      {torchModel, "torch"}, {torchMetaModel, "metadata"},
  };
  for (const auto& [known, name] : kKinds) {
    if (known == model) return name;
  }
  return "own";
}

void registerModels() {
  static constinit pyapi::Lazy<bool> registered;
  registered.get([] {
    for (const char* name : {"_operator", "operator", "math", "functools", "_functools", "itertools",
                             "collections", "_heapq", "_bisect", "re", "enum", "_json"}) {
      Py_XDECREF(pyapi::importModule(name));
    }
    PyErr_Clear();
    registerBuiltinModels();
    registerFoldedModels();
    registerClassCheckModels();
    registerContainerModels();
    registerListModels();
    registerFrameModels();
    registerGeneratorModels();
    registerObjectModels();
    registerCopyModels();
    registerFunctionModels();
    registerTorchModels();
    registerTorchTensorModels();
    registerOutputModels();
    registerTransformModels();
    registerHigherOrderModels();
    registerFunctionModeModels();
    registerPolyfillModels();
    registerSetModels();
    registerSignatureModels();
    registerDequeModels();
    registerGetterModels();
    registerRegexModels();
    registerLazyModels();
    registerClassModels();
    registerStandardLibraryModels();
    registerDistributedModels();
    registerWaitingModels();
    return true;
  });
}

const ModelEntry* entryOf(PyObject* callable) {
  registerModels();
  auto it = table().find(callable);
  if (it == table().end()) {
    findMissing();
    it = table().find(callable);
  }
  return it == table().end() ? nullptr : &entries()[it->second];
}

CallModel modelOf(PyObject* callable) {
  const ModelEntry* entry = entryOf(callable);
  return entry == nullptr ? nullptr : entry->model;
}

namespace {

// The shadow of a folded call's result. A list is rebuilt in each run. Any other result that could be changed
// or used up must not be one object for all runs, so the recording ends.
Shadow foldedResult(RecordContext& rec, PyObject* object, const ArgumentObjects& given) {
  if (PyList_CheckExact(object)) {
    bool plain = true;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
      plain = plain && isPlainDeep(PyList_GET_ITEM(object, i));
    if (plain) {
      const Shadow list = rec.objects.newVirtual(VirtualKind::kList, object);
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
        rec.objects.virtualOf(list).parts.push_back(given.shadowOf(PyList_GET_ITEM(object, i)));
      return list;
    }
  }
  const bool fixed =
      isPlainDeep(object) || isIdentityValue(object) || PyRange_Check(object) || pyapi::isNumpyNumber(object);
  if (!fixed) rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
  return given.shadowOf(object);
}

// True if repr() of the object is the same in another process. A function's has its address, a module's has
// its file.
bool hasFixedText(PyObject* object) {
  if (isPlainDeep(object)) return true;
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    PyObject** items = PySequence_Fast_ITEMS(object);
    return std::all_of(items, items + PySequence_Fast_GET_SIZE(object), hasFixedText);
  }
  if (PySlice_Check(object)) {
    const pyapi::SliceParts parts = pyapi::partsOfSlice(object);
    return hasFixedText(parts.start) && hasFixedText(parts.stop) && hasFixedText(parts.step);
  }
  return isIdentityValue(object) && !PyFunction_Check(object) && !PyCFunction_Check(object) &&
         !PyModule_Check(object);
}

bool isHash(PyObject* callable) {
  static constinit pyapi::Lazy<const std::unordered_set<PyObject*>*> slot;
  const auto* hashes = slot.get([] {
    auto* found = new std::unordered_set<PyObject*>();
    PathFinder paths;
    for (const char* name : {"builtins.hash", "builtins.str.__hash__", "builtins.bytes.__hash__"})
      found->insert(paths.find(name).release());
    return found;
  });
  return hashes->contains(callable);
}

}  // namespace

ArgumentObjects::ArgumentObjects(CallContext& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    PyObject* object = ctx.args.any(i);
    add(object, ctx.shadows.any(i));
    if (!PyTuple_CheckExact(object) && !PyList_CheckExact(object)) continue;
    const auto parts = ctx.rec.objects.elementsOf(ctx.shadows.any(i), object);
    PyObject** items = PySequence_Fast_ITEMS(object);
    for (size_t k = 0; parts && k < parts->size(); ++k) add(items[k], (*parts)[k]);
  }
}

void ArgumentObjects::add(PyObject* object, Shadow shadow) {
  // Numbers have no identity in a trace. None, classes and the like are pinned by identity anyway.
  const bool number = PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyComplex_CheckExact(object);
  const bool single = object == Py_None || PyBool_Check(object) || isIdentityValue(object);
  if (shadow.isSource() && !number && !single) objects_.emplace_back(pyapi::newRef(object), shadow);
}

Shadow ArgumentObjects::shadowOf(PyObject* object) const {
  for (const auto& [given, shadow] : objects_) {
    if (given.get() == object) return shadow;
  }
  return Shadow::constant();
}

namespace {

// Folds the call if `reads` allows it for all arguments: it says whether everything that the callable reads
// is pinned.
Flow foldWhere(CallContext& ctx, Shadow& result, bool (*reads)(RecordContext&, Shadow, PyObject*)) {
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  bool tensors = false, step = false, numbers = false, plain = true;
  for (size_t i = 0; i < ctx.total(); ++i) {
    numbers = numbers || variesAsNumber(ctx.rec, shadows[i], ctx.args.any(i));
    plain = plain && isPlainDeep(ctx.args.any(i));
    tensors = tensors || torchapi::isTensor(ctx.args.any(i));
    step = step || !ctx.rec.guards.canPinDeep(shadows[i], ctx.args.any(i)) ||
           !reads(ctx.rec, shadows[i], ctx.args.any(i)) ||
           (ctx.rec.guards.comesFromStep(shadows[i]) && !shadows[i].isValue());
  }
  if (tensors) {
    // A function that is not torch's could look at a symbolic number, or return it.
    ctx.pinNumbers = true;
    return torchModel(ctx, result);
  }
  // With run-time numbers, each run computes the result again. It is pinned where the program decides on it.
  if (numbers && plain && ctx.rec.live())
    return ctx.rec.steps.callStep(ctx, CallKind::kPure, nullptr, result);
  if (step) return knownModel(ctx, result);
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  const ArgumentObjects given(ctx);
  const bool hash = isHash(ctx.callable);
  bool fixed = true;
  for (size_t i = 0; i < ctx.total(); ++i) fixed = fixed && (plain || hasFixedText(ctx.args.any(i)));
  Flow flow = run(ctx);
  if (flow != Flow::kNext || !ctx.pushes || !ctx.rec.live()) return flow;
  PyObject* made = ctx.act.peek(1);
  // Strings have other hashes in another process.
  if (hash || (!fixed && (PyUnicode_Check(made) || PyBytes_Check(made))))
    ctx.rec.facts.bound = "a hash, or the text of an object, is part of it";
  result = foldedResult(ctx.rec, made, given);
  return flow;
}

}  // namespace

Flow foldModel(CallContext& ctx, Shadow& result) {
  return foldWhere(ctx, result, [](RecordContext& rec, Shadow shadow, PyObject* object) {
    const bool named = object != nullptr && isIdentityValue(object);
    return (!named || guardNames(rec, object)) && canFold(rec, shadow, object);
  });
}

Flow identityModel(CallContext& ctx, Shadow& result) {
  return foldWhere(ctx, result, [](RecordContext&, Shadow, PyObject*) { return true; });
}

// Fields of the format may read attributes of an argument, which may run Python code.
Flow formatModel(CallContext& ctx, Shadow& result) {
  bool plain = true;
  for (size_t i = 0; i < ctx.total(); ++i) {
    PyObject* object = ctx.args.any(i);
    plain = plain && (canFold(ctx.rec, ctx.shadows.any(i), object, true) || torchapi::isTensor(object));
  }
  return plain ? foldModel(ctx, result) : opaqueModel(ctx, result);
}

Flow arithmeticModel(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (torchapi::isTensor(ctx.args.any(i))) return torchModel(ctx, result);
  }
  return foldModel(ctx, result);
}

Flow constantModel(CallContext& ctx, Shadow& result) {
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.canPinDeep(shadows[i], ctx.args.any(i))) return knownModel(ctx, result);
  }
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  result = Shadow::constant();
  return run(ctx);
}

Flow blockingModel(CallContext& ctx, Shadow& result) {
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result);
}

Flow outputModel(CallContext& ctx, Shadow& result) {
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result);
}

Flow knownModel(CallContext& ctx, Shadow& result) {
  return ctx.rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
}

Flow opaqueModel(CallContext& ctx, Shadow& result) {
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, "", result);
}

Flow torchModel(CallContext& ctx, Shadow& result) { return ctx.rec.torch.torchStep(ctx, result); }

Flow torchMetaModel(CallContext& ctx, Shadow& result) {
  ctx.onlyReadsMetadata = true;
  return ctx.rec.torch.torchStep(ctx, result);
}

Flow runVirtual(CallContext& ctx, VirtualKind kind, Shadow& result) {
  Flow flow = run(ctx);
  if (flow == Flow::kNext && ctx.rec.live()) result = ctx.rec.objects.newVirtual(kind, ctx.act.peek(1));
  return flow;
}

Flow unknownSequence(CallContext& ctx, Shadow& result) { return opaqueModel(ctx, result); }

const ModelEntry* entryBehind(PyObject* callable) {
  const ModelEntry* entry = entryOf(callable);
  if (entry != nullptr || !PyFunction_Check(callable) || !isTorchWrapper(callable)) return entry;
  static PyObject* name = PyUnicode_InternFromString("__wrapped__");
  PyObject* dict = pyapi::attributesOf(pyapi::asFunction(callable));
  PyObject* wrapped = dict == nullptr ? nullptr : PyDict_GetItemWithError(dict, name);
  return wrapped == nullptr ? nullptr : entryOf(wrapped);
}

CallModel modelOfFunction(PyObject* function) {
  const ModelEntry* entry = entryBehind(function);
  return entry != nullptr ? entry->model : modelOfCode(PyFunction_GET_CODE(function));
}

bool acceptsArguments(PyObject* called, const CallContext& ctx) {
  const bool made = PyType_Check(called);
  PyObject* function = made ? specialMethod(reinterpret_cast<PyTypeObject*>(called), "__init__") : called;
  KINTSUGI_CHECK(function != nullptr && PyFunction_Check(function), "a polyfill that is no Python code");
  const size_t self = made ? 1 : 0;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const auto count = static_cast<size_t>(pyapi::argumentCount(code));
  const size_t named = count + static_cast<size_t>(pyapi::keywordOnlyCount(code));
  if (self + ctx.positional > count && (pyapi::flagsOf(code) & CO_VARARGS) == 0) return false;
  std::vector<bool> given(named);
  for (size_t i = 0; i < std::min(self + ctx.positional, count); ++i) given[i] = true;
  pyapi::Ref<> names = pyapi::steal(PyCode_GetVarnames(code));
  for (size_t i = ctx.positional; i < ctx.total(); ++i) {
    auto at = static_cast<size_t>(pyapi::positionalOnlyCount(code));
    while (at < named && PyUnicode_Compare(PyTuple_GET_ITEM(names.get(), at), ctx.nameOf(i)) != 0) ++at;
    if (at == named && (pyapi::flagsOf(code) & CO_VARKEYWORDS) == 0) return false;
    if (at < named && given[at]) return false;
    if (at < named) given[at] = true;
  }
  PyObject* defaults = PyFunction_GET_DEFAULTS(function);
  PyObject* keywordDefaults = PyFunction_GET_KW_DEFAULTS(function);
  const size_t optional = defaults != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(defaults)) : 0;
  for (size_t i = 0; i < named; ++i) {
    const bool defaulted = i < count ? i + optional >= count
                                     : keywordDefaults != nullptr &&
                                           PyDict_Contains(keywordDefaults, PyTuple_GET_ITEM(names.get(), i));
    if (!given[i] && !defaulted) return false;
  }
  return true;
}

}  // namespace kintsugi::capture
