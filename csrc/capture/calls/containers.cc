// Models: list, tuple, dict and set, their constructors and methods.
#include "capture/calls/argument_iterator.h"
#include "capture/calls/model.h"
#include "capture/calls/open_lists.h"
#include "capture/calls/table.h"
#include "capture/hashes.h"
#include "capture/open_values.h"
#include "capture/sizes.h"
#include "capture/tables/pauses.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// True for zip() and enumerate() of this trace, whose items are made one by one.
bool isAssembled(CallContext& ctx) {
  if (!ctx.shadows[0].isVirtual()) return false;
  const VirtualKind kind = ctx.rec.objects.virtualOf(ctx.shadows[0]).kind;
  return kind == VirtualKind::kZip || kind == VirtualKind::kEnumerate;
}

// `list(tensor)`, `tuple(tensor)`: pins the number of rows.
Flow rowsOfTensor(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  Shadow shadow = ctx.shadows[0];
  if (shadow.isVirtual() || !torchapi::isExactTensorType(Py_TYPE(ctx.args[0])))
    return opaqueModel(ctx, result);
  shadow = rec.guards.tensorShadow(ctx.args[0], shadow);
  if (!rec.live() || !pinMeta(rec, shadow, ctx.args[0])) return run(ctx);
  ctx.shadows.replace(&shadow);
  return torchModel(ctx, result);
}

// `list(x)`, `tuple(x)`, `x.copy()`.
Flow sequenceModel(CallContext& ctx, Shadow& result) {
  const bool tuple = ctx.callable == reinterpret_cast<PyObject*>(&PyTuple_Type);
  if (!tuple) {
    if (auto flow = copyOpenList(ctx, result)) return *flow;
  }
  if (auto flow = consumeOpen(ctx, result)) return *flow;
  if (ctx.total() == 1 && (tuple || ctx.callable == reinterpret_cast<PyObject*>(&PyList_Type))) {
    if (auto flow = iterateInstead(ctx, tuple ? "tuple_" : "list_", result)) return *flow;
  }
  bool generator = ctx.total() == 1 && ctx.shadows[0].isVirtual() &&
                   ctx.rec.objects.virtualOf(ctx.shadows[0]).kind == VirtualKind::kGenerator;
  std::optional<Shadows> parts = Shadows{};
  bool items = false;
  if (generator) {
    ctx.rec.callees.expectItems(ctx.shadows[0]);
  } else if (ctx.total() == 1) {
    if (torchapi::isTensor(ctx.args[0])) return rowsOfTensor(ctx, result);
    if (isAssembled(ctx)) return iterableObject(ctx, result);
    if (pythonMethod(ctx.args[0], "__iter__") != nullptr) return iterableObject(ctx, result);
    parts = ctx.shadows[0].isValue() ? std::nullopt : ctx.rec.objects.iterated(ctx.shadows[0], ctx.args[0]);
    items = ctx.shadows[0].isVirtual() && ctx.rec.objects.isItemsView(ctx.shadows[0]);
  }
  if (!parts) return ctx.rec.live() ? unknownSequence(ctx, result) : run(ctx);
  Shadow source = ctx.total() > 0 ? ctx.shadows[0] : Shadow::constant();
  Flow flow = run(ctx);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  if (generator) parts = ctx.rec.callees.takeItems();
  PyObject* made = ctx.act.peek(1);
  if (parts->size() != static_cast<size_t>(Py_SIZE(made))) {
    ctx.rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(made)});
    return flow;
  }
  if (auto known = ctx.rec.objects.knownObject(made)) {  // `tuple(t)` is `t` itself
    result = *known;
    return flow;
  }
  for (size_t i = 0; items && i < parts->size(); ++i) {
    PyObject* pair = PyList_Check(made) ? PyList_GET_ITEM(made, i) : PyTuple_GET_ITEM(made, i);
    (*parts)[i] = ctx.rec.objects.tupleOf(pair, {Shadow::constant(), (*parts)[i]});
  }
  if (source.isVirtual() && ctx.rec.objects.virtualOf(source).kind == VirtualKind::kIterator) {
    ctx.rec.objects.virtualOf(source).index += static_cast<int64_t>(parts->size());
    ctx.rec.objects.noteChange();
  }
  if (PyTuple_Check(made)) {
    result = ctx.rec.objects.tupleOf(made, std::move(*parts));
  } else {
    result = ctx.rec.objects.newVirtual(VirtualKind::kList, made);
    ctx.rec.objects.virtualOf(result).parts = std::move(*parts);
  }
  return flow;
}

// True if the argument gives pairs that the trace can follow.
bool isPairs(CallContext& ctx, size_t argument) {
  PyObject* object = ctx.args[argument];
  if (ctx.shadows[argument].isValue()) return false;
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object) || makesFrames(ctx, argument)) return true;
  if (!ctx.shadows[argument].isVirtual()) return false;
  const VirtualKind kind = ctx.rec.objects.virtualOf(ctx.shadows[argument]).kind;
  return kind == VirtualKind::kZip || kind == VirtualKind::kEnumerate;
}

// `dict(pairs)`.
std::optional<Flow> dictOfPairs(CallContext& ctx, Shadow& result) {
  if (ctx.positional != 1 || PyDict_Check(ctx.args[0]) || ctx.shadows[0].isValue()) return std::nullopt;
  const bool ordered = ctx.callable == reinterpret_cast<PyObject*>(&PyODict_Type);
  PyObject* function = polyfill(ordered ? "ordered_dict" : "dict_");
  const bool simple = function != nullptr && isPairs(ctx, 0);
  return simple ? std::optional(callInstead(ctx, function, result)) : std::nullopt;
}

// `dict()`, `dict(other)`, `dict(a=1)`.
Flow dictModel(CallContext& ctx, Shadow& result) {
  std::vector<std::pair<pyapi::Ref<>, Shadow>> entries;
  const bool exact = ctx.callable == reinterpret_cast<PyObject*>(&PyDict_Type) ||
                     ctx.callable == reinterpret_cast<PyObject*>(&PyODict_Type);
  // The type decides whether it is a mapping or an iterable of pairs.
  if (ctx.positional == 1 && !torchapi::isTensor(ctx.args[0]))
    ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
  if (ctx.total() == 1 && exact) {
    if (auto flow = dictOfPairs(ctx, result)) return *flow;
  }
  if (ctx.positional > 1) return opaqueModel(ctx, result);
  if (ctx.positional == 1) {
    PyObject* other = ctx.args[0];
    Shadow shadow = ctx.shadows[0];
    if (shadow.isVirtual() && ctx.rec.objects.virtualOf(shadow).kind == VirtualKind::kDictView &&
        ctx.rec.objects.isItemsView(shadow)) {
      Virtual& view = ctx.rec.objects.virtualOf(shadow);
      other = view.partObjects[0].get();
      shadow = view.parts[0];
    } else if (!PyDict_Check(other) || shadow.isValue() || !ctx.rec.objects.plainDict(other)) {
      return opaqueModel(ctx, result);
    }
    auto values = ctx.rec.objects.dictParts(shadow, other, 1);
    pyapi::Ref<> keys = pyapi::steal(PySequence_List(other));
    if (!values) return run(ctx);
    for (size_t i = 0; i < values->size(); ++i) {
      entries.emplace_back(pyapi::newRef(PyList_GET_ITEM(keys.get(), i)), (*values)[i]);
    }
  }
  for (size_t i = ctx.positional; i < ctx.total(); ++i) {
    entries.emplace_back(pyapi::newRef(ctx.nameOf(i)), ctx.shadows.any(i));
  }
  Flow flow =
      runVirtual(ctx, PyDict_CheckExact(ctx.callable) ? VirtualKind::kDict : VirtualKind::kInstance, result);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  if (PyDict_CheckExact(ctx.act.peek(1))) ctx.rec.objects.virtualOf(result).kind = VirtualKind::kDict;
  for (auto& [key, value] : entries)
    ctx.rec.objects.setEntry(ctx.rec.objects.virtualOf(result), key.get(), value);
  return flow;
}

// `defaultdict()`, `defaultdict(factory, dict)`: a virtual dict. Polyfills make its missing items.
Flow defaultDictModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  const bool simple = ctx.kwnames == nullptr && ctx.total() <= 2 &&
                      (ctx.total() < 2 || (PyDict_CheckExact(ctx.args[1]) && !ctx.shadows[1].isValue()));
  if (!simple) return opaqueModel(ctx, result);
  Shadow factory = ctx.total() > 0 ? ctx.shadows[0] : Shadow::constant();
  if (ctx.total() > 0) rec.guards.guardType(factory, ctx.args[0]);  // decides whether it can be called
  std::optional<Shadows> values = Shadows{};
  pyapi::Ref<> keys = pyapi::steal(PyList_New(0));
  if (ctx.total() == 2) {
    values = rec.objects.dictParts(ctx.shadows[1], ctx.args[1], 1);
    keys = pyapi::steal(PySequence_List(ctx.args[1]));
    if (!values) return run(ctx);
  }
  Flow flow = runVirtual(ctx, VirtualKind::kInstance, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  static PyObject* name = PyUnicode_InternFromString("default_factory");
  rec.objects.setAttrShadow(rec.objects.virtualOf(result), name, factory);
  for (size_t i = 0; i < values->size(); ++i) {
    rec.objects.setEntry(rec.objects.virtualOf(result),
                         PyList_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i)), (*values)[i]);
  }
  return flow;
}

Flow popitemModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  PyObject* dict = ctx.args[0];
  if (!PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) == 0 || ctx.shadows[0].isValue() || ctx.total() != 1)
    return opaqueModel(ctx, result);
  if (!rec.guards.pinKeys(ctx.shadows[0], dict)) return rec.live() ? opaqueModel(ctx, result) : run(ctx);
  pyapi::Ref<> keys = pyapi::steal(PySequence_List(dict));
  pyapi::Ref<> key = pyapi::newRef(PyList_GET_ITEM(keys.get(), PyList_GET_SIZE(keys.get()) - 1));
  if (isHashedInPython(key.get())) return opaqueModel(ctx, result);
  Shadow value =
      rec.objects.dictEntry(ctx.shadows[0], dict, key.get(), PyDict_GetItemWithError(dict, key.get()));
  if (rec.live() && !rec.heap.takeItem(ctx.shadows[0], dict, key.get(), false)) {
    rec.abort(diag::Code::KTG0303, {"dict.popitem"});
  }
  Flow flow = run(ctx);
  if (flow == Flow::kNext && rec.live())
    result = rec.objects.tupleOf(ctx.act.peek(1), {Shadow::constant(), value});
  return flow;
}

// True if each run has to ask the dict: the key varies, or something was stored under such a one before.
bool isAskedEachRun(CallContext& ctx) {
  if (!ctx.shadows[0].isSource() || !PyDict_CheckExact(ctx.args[0]) || ctx.total() < 2) return false;
  const Overlay* overlay = ctx.rec.objects.overlayOf(ctx.args[0]);
  const bool varies = isVaryingLookUp(ctx.rec, ctx.shadows[1], ctx.args[1], ctx.args[0]);
  const bool asked = varies || (overlay != nullptr && overlay->dirty && isPlainDeep(ctx.args[1]));
  if (asked) {
    ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
    ctx.rec.guards.guardType(ctx.shadows[1], ctx.args[1]);
  }
  return asked;
}

// A step that changes the dict, so that its entries are read again.
Flow changeEachRun(CallContext& ctx, Shadow& result) {
  pyapi::Ref<> dict = pyapi::newRef(ctx.args[0]);
  Shadow value = ctx.total() > 2 ? ctx.shadows[2] : Shadow::constant();
  if (ctx.total() > 2 && value.isVirtual() && !ctx.rec.snapshots.escape(value, ctx.args[2])) return run(ctx);
  Flow flow = knownModel(ctx, result);
  if (ctx.rec.live()) ctx.rec.objects.makeOverlay(dict.get()).dirty = true;
  return flow;
}

// True if looking the key up in the dict runs no code of the program.
bool isLookedUp(CallContext& ctx) {
  return ctx.rec.objects.plainDict(ctx.args[0]) && !pyapi::needsProgram(ctx.args[0], ctx.args[1]);
}

Flow dictGetModel(CallContext& ctx, Shadow& result) {
  PyObject* dict = ctx.args[0];
  if (isAskedEachRun(ctx)) return knownModel(ctx, result);
  Shadow key = ctx.shadows[1];
  if (ctx.shadows[0].isValue() || !isLookedUp(ctx) || !pinKey(ctx.rec, key, ctx.args[1])) {
    return ctx.rec.live() ? knownModel(ctx, result) : run(ctx);
  }
  PyObject* value = PyDict_GetItemWithError(dict, ctx.args[1]);
  PyErr_Clear();
  if (value != nullptr) {
    result = ctx.rec.objects.dictEntry(ctx.shadows[0], dict, ctx.args[1], value);
  } else {
    ctx.rec.heap.lacksKey(ctx.shadows[0], dict, ctx.args[1]);
    result = ctx.total() > 2 ? ctx.shadows[2] : Shadow::constant();
  }
  return run(ctx);
}

Flow dictPopModel(CallContext& ctx, Shadow& result) {
  PyObject* dict = ctx.args[0];
  if (isAskedEachRun(ctx)) return changeEachRun(ctx, result);
  Shadow key = ctx.shadows[1];
  if (!isLookedUp(ctx) || !pinKey(ctx.rec, key, ctx.args[1])) {
    return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  }
  PyObject* value = PyDict_GetItemWithError(dict, ctx.args[1]);
  PyErr_Clear();
  result = value != nullptr  ? ctx.rec.objects.dictEntry(ctx.shadows[0], dict, ctx.args[1], value)
           : ctx.total() > 2 ? ctx.shadows[2]
                             : Shadow::constant();
  const bool raises = ctx.total() == 2;
  if (ctx.rec.live() && !ctx.rec.heap.takeItem(ctx.shadows[0], dict, ctx.args[1], raises)) {
    ctx.rec.abort(diag::Code::KTG0303, {"dict.pop"});
  }
  return run(ctx);
}

Flow setdefaultModel(CallContext& ctx, Shadow& result) {
  PyObject* dict = ctx.args[0];
  if (ctx.total() == 3 && isAskedEachRun(ctx)) return changeEachRun(ctx, result);
  Shadow key = ctx.shadows[1];
  if (ctx.total() < 3 || !isLookedUp(ctx) || !pinKey(ctx.rec, key, ctx.args[1])) {
    return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  }
  PyObject* value = PyDict_GetItemWithError(dict, ctx.args[1]);
  PyErr_Clear();
  if (value != nullptr) {
    result = ctx.rec.objects.dictEntry(ctx.shadows[0], dict, ctx.args[1], value);
  } else {
    ctx.rec.heap.lacksKey(ctx.shadows[0], dict, ctx.args[1]);
    const ir::Op op = ctx.rec.heap.canLeave() ? ir::Op::kAddItem : ir::Op::kSetItem;
    ctx.rec.heap.storeItem(ctx.shadows[0], dict, ctx.args[1], ctx.shadows[2], ctx.args[2], op);
    result = ctx.shadows[2];
  }
  return run(ctx);
}

Flow dictView(CallContext& ctx, Shadow& result, int64_t what) {
  PyObject* dict = ctx.args[0];
  Shadow shadow = ctx.shadows[0];
  if (shadow.isValue() || !ctx.rec.objects.plainIteration(dict)) return knownModel(ctx, result);
  pyapi::Ref<> kept = pyapi::newRef(dict);
  Flow flow = runVirtual(ctx, VirtualKind::kDictView, result);
  if (flow == Flow::kNext && ctx.rec.live()) {
    Virtual& v = ctx.rec.objects.virtualOf(result);
    v.index = what;
    v.parts = {shadow};
    v.partObjects.push_back(std::move(kept));
  }
  return flow;
}
Flow keysModel(CallContext& ctx, Shadow& result) { return dictView(ctx, result, 0); }
Flow valuesModel(CallContext& ctx, Shadow& result) { return dictView(ctx, result, 1); }
Flow itemsModel(CallContext& ctx, Shadow& result) { return dictView(ctx, result, 2); }

Flow dictUpdateModel(CallContext& ctx, Shadow& result) {
  PyObject* dict = ctx.args[0];
  bool ok = true;
  if (ctx.total() == 2 && ctx.kwnames == nullptr && pythonMethod(dict, "__setitem__") == nullptr &&
      isPairs(ctx, 1)) {
    if (PyObject* function = polyfill("update_dict")) return callInstead(ctx, function, result);
  }
  if (ctx.positional == 2) {
    PyObject* other = ctx.args[1];
    ok = PyDict_Check(other) && !ctx.shadows[1].isValue() && ctx.rec.objects.plainDict(other);
    auto values = ok ? ctx.rec.objects.dictParts(ctx.shadows[1], other, 1) : std::nullopt;
    ok = values.has_value();
    pyapi::Ref<> keys = pyapi::steal(ok ? PySequence_List(other) : nullptr);
    for (size_t i = 0; ok && i < values->size(); ++i) {
      PyObject* key = PyList_GET_ITEM(keys.get(), i);
      if (pyapi::needsProgram(dict, key)) return opaqueModel(ctx, result);
      ok = ctx.rec.heap.storeItem(ctx.shadows[0], dict, key, (*values)[i],
                                  PyDict_GetItemWithError(other, key));
    }
  }
  for (size_t i = ctx.positional; ok && i < ctx.total(); ++i) {
    ok = ctx.rec.heap.storeItem(ctx.shadows[0], dict, ctx.nameOf(i), ctx.shadows.any(i), ctx.args.any(i));
  }
  if (!ok) ctx.rec.abort(diag::Code::KTG0303, {"dict.update"});
  result = Shadow::constant();
  return run(ctx);
}

// `dict.__init__(self)` without items, as the `__init__` of a subclass may call it.
Flow dictInitModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() != 1) return opaqueModel(ctx, result);
  result = Shadow::constant();
  return run(ctx);
}

Flow setItemModel(CallContext& ctx, Shadow& result) {
  Shadow key = ctx.shadows[1];
  result = Shadow::constant();
  if (!pinKey(ctx.rec, key, ctx.args[1]) ||
      !ctx.rec.heap.storeItem(ctx.shadows[0], ctx.args[0], ctx.args[1], ctx.shadows[2], ctx.args[2])) {
    ctx.rec.abort(diag::Code::KTG0303, {"__setitem__"});
  }
  return run(ctx);
}

Flow getItemModel(CallContext& ctx, Shadow& result) {
  Shadow key = ctx.shadows[1];
  const bool known = !pyapi::needsProgram(ctx.args[0], ctx.args[1]) && pinKey(ctx.rec, key, ctx.args[1]);
  PyObject* value = known ? PyDict_GetItemWithError(ctx.args[0], ctx.args[1]) : nullptr;
  PyErr_Clear();
  if (value == nullptr || ctx.shadows[0].isValue())
    return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  result = ctx.rec.objects.dictEntry(ctx.shadows[0], ctx.args[0], ctx.args[1], value);
  return run(ctx);
}

Flow delItemModel(CallContext& ctx, Shadow& result) {
  Shadow key = ctx.shadows[1];
  result = Shadow::constant();
  const bool known = !ctx.shadows[0].isValue() && pinKey(ctx.rec, key, ctx.args[1]) &&
                     ctx.rec.heap.deleteItem(ctx.shadows[0], ctx.args[0], ctx.args[1]);
  if (!known) ctx.rec.abort(diag::Code::KTG0303, {"__delitem__"});
  return run(ctx);
}

// `dict.fromkeys(cls, keys, value=None)`.
Flow fromkeysModel(CallContext& ctx, Shadow& result) {
  PyObject* iterable = ctx.args[1];
  Shadow keysShadow = ctx.shadows[1];
  bool simple = PyTuple_Check(iterable) || PyList_Check(iterable) || PyRange_Check(iterable) ||
                PyDict_Check(iterable) || PyUnicode_CheckExact(iterable);
  simple = simple && ctx.args[0] == reinterpret_cast<PyObject*>(&PyDict_Type);
  if (!simple || !ctx.rec.guards.tryPinDeep(keysShadow, iterable))
    return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  pyapi::Ref<> keys = pyapi::steal(PySequence_List(iterable));
  Py_hash_t hash = 0;
  for (Py_ssize_t i = 0; keys && i < PyList_GET_SIZE(keys.get()); ++i) {
    if (!pyapi::plainHash(PyList_GET_ITEM(keys.get(), i), &hash))
      return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  }
  Shadow value = ctx.total() > 2 ? ctx.shadows[2] : Shadow::constant();
  const auto make = [&] {
    const Paused paused(ctx.rec.pauses);  // enum hashes its members by Python code
    return runVirtual(ctx, VirtualKind::kDict, result);
  };
  Flow flow = make();
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
    ctx.rec.objects.setEntry(ctx.rec.objects.virtualOf(result), PyList_GET_ITEM(keys.get(), i), value);
  }
  return flow;
}

constexpr ModelRow kRows[] = {
    {"builtins.dict.fromkeys", fromkeysModel, gives(kItsObject)},
    {"builtins.list", sequenceModel, gives("list")},
    {"builtins.tuple", sequenceModel, gives("tuple")},
    {"builtins.list.copy", sequenceModel, gives("list").runsNoPython()},
    {"builtins.tuple.index", identityModel, gives("int").raises("ValueError")},
    {"builtins.tuple.count", identityModel, gives("int")},
    {"builtins.dict", dictModel, gives("dict").raises("ValueError")},
    {"collections.OrderedDict", dictModel, gives("collections.OrderedDict").raises("ValueError")},
    {"collections.defaultdict", defaultDictModel, gives("collections.defaultdict").raises("ValueError")},
    {"builtins.dict.popitem", popitemModel, gives("tuple").runsNoPython().raises("KeyError")},
    {"builtins.dict.copy", dictModel, gives("dict").runsNoPython()},
    {"builtins.dict.get", dictGetModel, gives(kAnItem)},
    {"builtins.dict.pop", dictPopModel, gives(kAnItem).raises("KeyError")},
    {"collections.OrderedDict.pop", dictPopModel, gives(kAnItem).raises("KeyError")},
    {"builtins.dict.setdefault", setdefaultModel, gives(kAnItem)},
    {"collections.OrderedDict.setdefault", setdefaultModel, gives(kAnItem)},
    {"builtins.dict.keys", keysModel, gives("dict_keys").runsNoPython()},
    {"builtins.dict.values", valuesModel, gives("dict_values").runsNoPython()},
    {"builtins.dict.items", itemsModel, gives("dict_items").runsNoPython()},
    {"collections.OrderedDict.keys", keysModel, gives("odict_keys").runsNoPython()},
    {"collections.OrderedDict.values", valuesModel, gives("odict_values").runsNoPython()},
    {"collections.OrderedDict.items", itemsModel, gives("odict_items").runsNoPython()},
    {"builtins.dict.__init__", dictInitModel, gives("None").raises("ValueError")},
    {"builtins.dict.update", dictUpdateModel, gives("None").raises("ValueError")},
    {"collections.OrderedDict.update", dictUpdateModel, gives("None").raises("ValueError")},
    {"builtins.dict.__setitem__", setItemModel, gives("None")},
    {"collections.OrderedDict.__setitem__", setItemModel, gives("None")},
    {"builtins.dict.__delitem__", delItemModel, gives("None").raises("KeyError")},
    {"collections.OrderedDict.__delitem__", delItemModel, gives("None").raises("KeyError")},
    {"builtins.dict.__getitem__", getItemModel, gives(kAnItem).raises("KeyError")},
};

}  // namespace

void registerContainerModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
