// Models: operator.itemgetter, attrgetter and methodcaller, and the result of functools.cmp_to_key(). They
// can't change, so what they ask for is known. A call of one is recorded as a call of a polyfill that asks
// for the same.
#include "capture/calls/getters.h"

#include <array>

#include "capture/calls/table.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"

namespace kintsugi::capture {

namespace {

struct Getter {
  const char* name;  // in `operator`
  const char* polyfill;
};
constexpr std::array kGetters = {Getter{"itemgetter", "get_items"}, Getter{"attrgetter", "get_attributes"},
                                 Getter{"methodcaller", "call_method"}};
constexpr Getter kComparing = {"cmp_to_key", "compared"};

PyObject* cmpToKey() {
  static constinit pyapi::Lazy<PyObject*> functionSlot;
  PyObject* function = functionSlot.get([] {
    pyapi::Ref<> module = pyapi::steal(pyapi::importModule("_functools"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "cmp_to_key") : nullptr;
    PyErr_Clear();
    return found;
  });
  return function;
}

// The type of the results of cmp_to_key(), which has no name.
PyTypeObject* keyType() {
  static constinit pyapi::Lazy<PyTypeObject*> typeSlot;
  PyTypeObject* type = typeSlot.get([] {
    pyapi::Ref<> made =
        pyapi::steal(cmpToKey() != nullptr ? PyObject_CallOneArg(cmpToKey(), Py_None) : nullptr);
    PyErr_Clear();
    return made ? reinterpret_cast<PyTypeObject*>(Py_NewRef(Py_TYPE(made.get()))) : nullptr;
  });
  return type;
}

const Getter* getterOf(PyTypeObject* type) {
  static const std::array<PyObject*, kGetters.size()> types = [] {
    std::array<PyObject*, kGetters.size()> found{};
    pyapi::Ref<> module = pyapi::steal(pyapi::importModule("operator"));
    for (size_t i = 0; module && i < kGetters.size(); ++i)
      found[i] = PyObject_GetAttrString(module.get(), kGetters[i].name);
    PyErr_Clear();
    return found;
  }();
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == reinterpret_cast<PyObject*>(type)) return &kGetters[i];
  }
  return type == keyType() ? &kComparing : nullptr;
}

Flow getterModel(CallContext& ctx, Shadow& result) {
  Shadows parts(ctx.shadows.begin(), ctx.shadows.end());
  Refs objects;
  for (size_t i = 0; i < ctx.total(); ++i) objects.push_back(pyapi::newRef(ctx.args.any(i)));
  const size_t positional = ctx.positional;
  pyapi::Ref<> names = pyapi::newRef(ctx.kwnames);
  Flow flow = runVirtual(ctx, VirtualKind::kPartial, result);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  pyapi::Ref<> keywords = pyapi::steal(PyDict_New());
  for (size_t i = positional; i < parts.size(); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), static_cast<Py_ssize_t>(i - positional));
    PyDict_SetItem(keywords.get(), name, objects[i].get());
    ctx.rec.objects.setEntry(ctx.rec.objects.virtualOf(result), name, parts[i]);
  }
  Virtual& v = ctx.rec.objects.virtualOf(result);
  parts.resize(positional);
  objects.resize(positional);
  v.parts = std::move(parts);
  v.partObjects = std::move(objects);
  v.partObjects.push_back(std::move(keywords));
  return flow;
}

// `functools.cmp_to_key(function)`.
Flow comparingModel(CallContext& ctx, Shadow& result) {
  const bool simple = ctx.total() == 1 && ctx.kwnames == nullptr;
  return simple ? getterModel(ctx, result) : opaqueModel(ctx, result);
}

// Reads the arguments that an older getter was made with. `__reduce__` gives (type, arguments), or (partial,
// arguments) if there are keywords.
bool readFromReduce(RecordContext& rec, PyObject* getter, GetterCall& call) {
  pyapi::Ref<> reduced = pyapi::steal(PyObject_CallMethod(getter, "__reduce__", nullptr));
  if (!reduced || !PyTuple_Check(reduced.get()) || PyTuple_GET_SIZE(reduced.get()) != 2) {
    PyErr_Clear();
    return false;
  }
  PyObject* made = PyTuple_GET_ITEM(reduced.get(), 0);
  pyapi::Ref<> partialArgs, keywords;
  if (!PyType_Check(made)) {
    partialArgs = pyapi::steal(PyObject_GetAttrString(made, "args"));
    keywords = pyapi::steal(PyObject_GetAttrString(made, "keywords"));
    PyErr_Clear();
    if (!partialArgs || !keywords) return false;
  }
  auto add = [&](PyObject* object) {
    call.args.push_back(pyapi::newRef(object));
    call.shadows.push_back(isPlainDeep(object) ? Shadow::constant() : rec.guards.pinnedRoot(object));
  };
  for (PyObject* tuple : {partialArgs.get(), PyTuple_GET_ITEM(reduced.get(), 1)}) {
    for (Py_ssize_t i = 0; tuple != nullptr && i < PyTuple_GET_SIZE(tuple); ++i)
      add(PyTuple_GET_ITEM(tuple, i));
  }
  if (keywords) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(keywords.get(), &at, &name, &value)) {
      call.names.push_back(pyapi::newRef(name));
      add(value);
    }
  }
  return rec.live();
}

void readFromShadows(RecordContext& rec, Virtual& v, GetterCall& call) {
  for (size_t i = 0; i < v.parts.size(); ++i) {
    call.args.push_back(v.partObjects[i].clone());
    call.shadows.push_back(v.parts[i]);
  }
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(v.partObjects.back().get(), &at, &name, &value)) {
    call.names.push_back(pyapi::newRef(name));
    call.args.push_back(pyapi::newRef(value));
    call.shadows.push_back(*rec.objects.entryOf(v, name));
  }
}

constexpr ModelRow kRows[] = {
    {"operator.itemgetter", getterModel, gives("operator.itemgetter")},
    {"operator.attrgetter", getterModel, gives("operator.attrgetter")},
    {"operator.methodcaller", getterModel, gives("operator.methodcaller")},
    {"_functools.cmp_to_key", comparingModel, gives("functools.KeyWrapper").runsNoPython()},
};

}  // namespace

std::optional<GetterCall> getterCall(RecordContext& rec, Shadow shadow, PyObject* getter,
                                     const PyCodeObject* caller) {
  const Getter* row = getterOf(Py_TYPE(getter));
  if (row == &kComparing && !pyapi::isKnownCode(caller, pyapi::CodeFamily::kKeyTakers))
    return std::nullopt;  // others would see the polyfill's result
  PyObject* function = row != nullptr ? polyfill(row->polyfill) : nullptr;
  if (function == nullptr || shadow.isValue()) return std::nullopt;
  GetterCall call;
  call.function = function;
  if (shadow.isVirtual()) {
    Virtual& v = rec.objects.virtualOf(shadow);
    if (v.kind != VirtualKind::kPartial) return std::nullopt;
    readFromShadows(rec, v, call);
  } else if (rec.guards.comesFromStep(shadow) || !rec.guards.pin(shadow, getter) ||
             !readFromReduce(rec, getter, call)) {
    return std::nullopt;
  }
  // A functools.partial(function, *args, **keywords) takes the getter's place on the value stack.
  pyapi::Ref<> functools = pyapi::steal(pyapi::importModule("functools"));
  pyapi::Ref<> partial = pyapi::steal(PyObject_GetAttrString(functools.get(), "partial"));
  const size_t positional = call.args.size() - call.names.size();
  pyapi::Ref<> args = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(positional + 1)));
  pyapi::Ref<> keywords = pyapi::steal(PyDict_New());
  PyTuple_SET_ITEM(args.get(), 0, Py_NewRef(function));
  for (size_t i = 0; i < positional; ++i)
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i + 1), Py_NewRef(call.args[i].get()));
  for (size_t i = 0; i < call.names.size(); ++i)
    PyDict_SetItem(keywords.get(), call.names[i].get(), call.args[positional + i].get());
  call.callable = pyapi::steal(PyObject_Call(partial.get(), args.get(), keywords.get()));
  return call.callable ? std::optional(std::move(call)) : std::nullopt;
}

PyObject* makerOf(PyObject* object) {
  return Py_TYPE(object) == keyType() ? cmpToKey() : reinterpret_cast<PyObject*>(Py_TYPE(object));
}

void registerGetterModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
