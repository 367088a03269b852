// Models: inspect.signature(), and what programs read from its result.
//
// A signature follows from the function and can't change. So it is a frozen object of the recording, and so
// is everything that is read from it. Recording the Python code of signature() would take hundreds of
// instructions, and libraries call it in every call.
#include "capture/attributes.h"
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/functions.h"
#include "pyapi/imports.h"
#include "pyapi/mapping_proxy.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

using guard::SourceKind;

// True for signatures, their parameters, and read-only mappings of these. Other objects in them, such as
// default values, may change.
bool isFreezable(PyObject* object) {
  auto* type = Py_TYPE(object);
  if (type == &PyDictProxy_Type || type == &PyODictKeys_Type || type == &PyODictValues_Type ||
      type == &PyODictItems_Type || type == &PyDictKeys_Type || type == &PyDictValues_Type ||
      type == &PyDictItems_Type) {
    return true;
  }
  PyObject* dict = pyapi::loadedNamespace("inspect");
  auto* typeObject = reinterpret_cast<PyObject*>(type);
  return dict != nullptr && (typeObject == PyDict_GetItemString(dict, "Signature") ||
                             typeObject == PyDict_GetItemString(dict, "Parameter"));
}

PyObject* entryOf(PyObject* function, const char* name) {
  PyObject* dict = pyapi::attributesOf(pyapi::asFunction(function));
  return dict != nullptr ? PyDict_GetItemString(dict, name) : nullptr;
}

// Pins what a field of a function is, None included, and the entries of a dict. False: this is not possible.
bool pinField(RecordContext& rec, ir::SourceId source, PyObject* function, const char* field) {
  const pyapi::Ref<> name = pyapi::steal(PyUnicode_InternFromString(field));
  PyObject* descriptor = name ? pyapi::lookUpInType(&PyFunction_Type, name.get()) : nullptr;
  const Paused paused(rec.pauses);  // from CPython 3.14 on, Python code may make the annotations
  const pyapi::Ref<> value = pyapi::steal(name ? PyObject_GetAttr(function, name.get()) : nullptr);
  if (!value) PyErr_Clear();
  if (!value || descriptor == nullptr) return false;
  Shadow read = rec.guards.readSource(SourceKind::kGetSet, source, descriptor, 0, value.get());
  if (!rec.guards.pin(read, value.get()) || !PyDict_Check(value.get())) return rec.live();
  if (!rec.guards.pinKeys(read, value.get())) return false;
  PyObject *key = nullptr, *entry = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(value.get(), &at, &key, &entry) != 0;) {
    Shadow part = rec.objects.dictEntry(read, value.get(), key, entry);
    if (!rec.guards.pin(part, entry)) return false;
  }
  return true;
}

// Pins what the signature of a function depends on. False: this is not possible, or the recording has ended.
bool pinSignature(RecordContext& rec, Shadow shadow, PyObject* function) {
  for (int depth = 0; depth < 8; ++depth) {
    if (!PyFunction_Check(function) || shadow.isVirtual() || shadow.isValue()) return false;
    if (entryOf(function, "__signature__") != nullptr) return false;
    if (shadow.isSource() && !rec.guards.pin(shadow, function)) return false;
    rec.guards.pinFunction(function);
    const ir::SourceId source = rec.guards.sourceOf(shadow, function);
    for (const char* field : {"__defaults__", "__kwdefaults__", "__annotations__"}) {
      if (!pinField(rec, source, function, field)) return false;
    }
    static PyObject* own = PyUnicode_InternFromString("__signature__");
    static PyObject* wrapped = PyUnicode_InternFromString("__wrapped__");
    if (planGeneric(rec, shadow, function, own).how != AttributePlan::kRaises) return false;
    PyObject* inner = entryOf(function, "__wrapped__");
    const AttributePlan plan = planGeneric(rec, shadow, function, wrapped);
    if (inner == nullptr) return plan.how == AttributePlan::kRaises && rec.live();
    if (plan.how != AttributePlan::kKnown || !rec.live()) return false;
    shadow = plan.shadow;
    function = inner;
  }
  return false;
}

Flow frozenResult(CallContext& ctx, Shadow& result) {
  const Paused paused(ctx.rec.pauses);
  Flow flow = run(ctx);
  if (flow == Flow::kNext && ctx.rec.live()) {
    result = frozenPart(ctx.rec, ctx.act.peek(1));
  }
  return flow;
}

Flow signatureModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (ctx.total() != 1 || ctx.kwnames != nullptr) return inlineFunction(ctx, result);
  PyObject* function = ctx.args[0];
  Shadow shadow = ctx.shadows[0];
  if (shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kMethod) {
    function = rec.objects.virtualOf(shadow).partObjects[0].get();
    shadow = rec.objects.virtualOf(shadow).parts[0];
  }
  if (!pinSignature(rec, shadow, function)) return rec.live() ? inlineFunction(ctx, result) : run(ctx);
  Shadow callable = ctx.callableShadow;
  if (callable.isSource() && !rec.guards.pin(callable, ctx.callable)) return run(ctx);
  return frozenResult(ctx, result);
}

// A proxy that the program has made before hands a call on to its mapping. So the call is that of the dict's
// own method, on what the proxy holds. Nothing: it is another kind of mapping, or the trace can't follow the
// proxy.
std::optional<Flow> throughProxy(CallContext& ctx, const char* name, Shadow& result) {
  RecordContext& rec = ctx.rec;
  const Shadow proxy = ctx.shadows[0];
  PyObject* mapping = pyapi::mappingBehind(ctx.args[0]);
  if (mapping == nullptr || !proxy.isSource() || rec.guards.comesFromStep(proxy)) return std::nullopt;
  if (!PyDict_CheckExact(mapping) && Py_TYPE(mapping) != &PyODict_Type) return std::nullopt;
  PyObject* method = specialMethod(Py_TYPE(mapping), name);
  const CallModel model = method != nullptr ? modelOf(method) : nullptr;
  if (model == nullptr || pyapi::mappingField() == nullptr) return std::nullopt;
  rec.guards.guardType(proxy, ctx.args[0]);
  PooledVector<PyObject*> args(ctx.args.begin(), ctx.args.end());
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  args[0] = mapping;
  shadows[0] =
      rec.guards.readSource(SourceKind::kMember, proxy.sourceId(), pyapi::mappingField(), 0, mapping);
  if (!rec.live()) return run(ctx);
  CallContext inner = ctx;
  inner.of(method, Shadow::constant(), args.data(), shadows.data(), ctx.positional, ctx.kwnames);
  return model(inner, result);
}

// A method of a read-only mapping whose result may be changed.
Flow copyModel(CallContext& ctx, Shadow& result) {
  if (auto flow = throughProxy(ctx, "copy", result)) return *flow;
  return opaqueModel(ctx, result);
}

// For a method of a read-only mapping.
Flow mappingModel(CallContext& ctx, const char* name, Shadow& result) {
  if (auto flow = throughProxy(ctx, name, result)) return *flow;
  bool known = ctx.shadows[0].isConst() && ctx.rec.guards.isFrozen(ctx.args[0]);
  for (size_t i = 1; known && i < ctx.total(); ++i) {
    Shadow shadow = ctx.shadows.any(i);
    known = isPlainDeep(ctx.args.any(i)) && ctx.rec.guards.tryPinDeep(shadow, ctx.args.any(i));
  }
  if (known) return frozenResult(ctx, result);
  return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
}

Flow keysModel(CallContext& ctx, Shadow& result) { return mappingModel(ctx, "keys", result); }
Flow valuesModel(CallContext& ctx, Shadow& result) { return mappingModel(ctx, "values", result); }
Flow itemsModel(CallContext& ctx, Shadow& result) { return mappingModel(ctx, "items", result); }
Flow getModel(CallContext& ctx, Shadow& result) { return mappingModel(ctx, "get", result); }

constexpr ModelRow kRows[] = {
    {"inspect.signature", signatureModel, gives("inspect.Signature").raises("ValueError")},
    {"types.MappingProxyType.keys", keysModel, gives("dict_keys")},
    {"types.MappingProxyType.values", valuesModel, gives("dict_values")},
    {"types.MappingProxyType.items", itemsModel, gives("dict_items")},
    {"types.MappingProxyType.get", getModel, gives(kAnItem)},
    {"types.MappingProxyType.copy", copyModel, gives("dict")},
};

}  // namespace

Shadow frozenPart(RecordContext& rec, PyObject* object) {
  if (!isFreezable(object)) return classValue(rec, object);
  rec.guards.freeze(object);
  return Shadow::constant();
}

void registerSignatureModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
