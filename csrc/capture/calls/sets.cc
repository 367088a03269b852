// Models: set and frozenset. A set of the trace holds constants, and members by identity: tensors and objects
// of the trace. The latter are the `parts` of its Virtual.
#include "capture/calls/argument_iterator.h"
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/hashes.h"
#include "capture/shown.h"
#include "capture/tables/pauses.h"
#include "pyapi/containers.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// The set, if the trace has made it and nobody else has seen it; else null.
Virtual* ownSet(CallContext& ctx) {
  if (!ctx.shadows[0].isVirtual()) return nullptr;
  Virtual& v = ctx.rec.objects.virtualOf(ctx.shadows[0]);
  return v.kind == VirtualKind::kSet && v.value == ir::kNone ? &v : nullptr;
}

bool isKnownMember(PyObject* item) { return isPlainDeep(item) || isIdentityValue(item); }

// For an argument that may also be another kind of iterable.
bool pinElements(CallContext& ctx, size_t argument) {
  Shadow shadow = ctx.shadows[argument];
  PyObject* object = ctx.args[argument];
  if (PyAnySet_CheckExact(object)) return pinSet(ctx.rec, shadow, object);
  return canFold(ctx.rec, shadow, object) && ctx.rec.guards.tryPinDeep(shadow, object);
}

Flow unknown(CallContext& ctx, Shadow& result) {
  return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
}

// Does the call leave an older set as it is, since the constant is in it, or is not, already? Then guards
// look for it, and nothing is done: `Module.__setattr__` discards names that hardly ever are there.
bool changesNothing(CallContext& ctx, pyapi::Lookup already) {
  PyObject *set = ctx.args[0], *item = ctx.args[1];
  Shadow shadow = ctx.shadows[0];
  return ctx.shadows[1].isConst() && isPlainDeep(item) && shadow.isSource() && PyAnySet_CheckExact(set) &&
         ctx.rec.objects.overlayOf(set) == nullptr && pyapi::lookUpInSet(set, item) == already &&
         ctx.rec.guards.pinMembership(shadow, set, item);
}

// A change of an older set is an effect. The set can't be read any more in this trace. `varies`: nor is what
// was in it before guarded, so readers ask the set.
Flow changeByEffect(CallContext& ctx, const char* method,
                    const std::vector<std::pair<Shadow, PyObject*>>& arguments, bool varies, Shadow& result) {
  pyapi::Ref<> set = pyapi::newRef(ctx.args[0]);
  if (!ctx.rec.heap.emitMethod(method, ctx.shadows[0], set.get(), arguments)) return run(ctx);
  Flow flow = run(ctx);
  Overlay& overlay = ctx.rec.objects.makeOverlay(set.get());
  overlay.dirty = true;
  overlay.varies = overlay.varies || varies;
  result = Shadow::constant();
  return flow;
}

// add() and discard() of an older set.
Flow changeOld(CallContext& ctx, const char* method, pyapi::Lookup already, Shadow& result) {
  if (!ctx.shadows[0].isSource() && !ctx.shadows[0].isConst()) return opaqueModel(ctx, result);
  if (changesNothing(ctx, already)) {
    result = Shadow::constant();
    return run(ctx);
  }
  if (!ctx.rec.live()) return run(ctx);
  if (isHashedInPython(ctx.args[1])) return opaqueModel(ctx, result);
  ctx.rec.guards.guardType(ctx.shadows[1], ctx.args[1]);  // another one may be, in another call
  return changeByEffect(ctx, method, {{ctx.shadows[1], ctx.args[1]}}, !ctx.shadows[1].isConst(), result);
}

// The argument is a dict or a view of keys, which objects.iterated() has pinned, and all of them are
// constants.
bool givesPlainKeys(CallContext& ctx) {
  PyObject* object = ctx.args[0];
  const Shadow shadow = ctx.shadows[0];
  if (shadow.isVirtual() && ctx.rec.objects.virtualOf(shadow).kind == VirtualKind::kDictView) {
    const Virtual& view = ctx.rec.objects.virtualOf(shadow);
    if (view.index != 0) return false;
    object = view.partObjects[0].get();
  }
  if (!PyDict_Check(object)) return false;
  PyObject* key = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(object, &at, &key, nullptr)) {
    if (!isPlainDeep(key)) return false;
  }
  return true;
}

Flow setModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() == 1) {
    // C code takes the members of another set as they are, without its `__iter__`.
    if (ctx.callable == reinterpret_cast<PyObject*>(&PySet_Type) && !PyAnySet_Check(ctx.args[0])) {
      if (auto flow = iterateInstead(ctx, "set_", result)) return *flow;
    }
    auto parts =
        ctx.shadows[0].isValue() ? std::nullopt : ctx.rec.objects.iterated(ctx.shadows[0], ctx.args[0]);
    Shadow s = ctx.shadows[0];
    const bool frozen = ctx.shadows[0].isConst() && ctx.rec.guards.isFrozen(ctx.args[0]);
    const bool known =
        parts && (frozen || givesPlainKeys(ctx) ||
                  (PyAnySet_CheckExact(ctx.args[0]) ? pinElements(ctx, 0)
                                                    : ctx.rec.guards.tryPinDeep(s, ctx.args[0])));
    if (!known) return unknown(ctx, result);
  }
  return runVirtual(ctx, VirtualKind::kSet, result);
}

Flow addByIdentity(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  pyapi::Ref<> item = pyapi::newRef(ctx.args[1]);
  const Shadow shadow = memberShadow(rec, ctx.shadows[1], item.get());
  if (!rec.live() || !pinMember(rec, shadow, item.get(), ctx.shadows[0])) return run(ctx);
  const Paused paused(rec.pauses);
  const bool present = PySet_Contains(ctx.args[0], item.get()) == 1;
  Flow flow = run(ctx);
  if (!present) {
    Virtual& v = rec.objects.virtualOf(ctx.shadows[0]);
    v.parts.push_back(shadow);
    v.partObjects.push_back(std::move(item));
  }
  rec.objects.noteChange(ctx.shadows[0]);
  result = Shadow::constant();
  return flow;
}

Flow addModel(CallContext& ctx, Shadow& result) {
  Shadow item = ctx.shadows[1];
  const bool own = ownSet(ctx) != nullptr && ctx.total() == 2;
  if (own && isMemberByIdentity(item, ctx.args[1])) return addByIdentity(ctx, result);
  if (own && ctx.rec.guards.tryPinDeep(item, ctx.args[1])) {
    ctx.rec.objects.noteChange(ctx.shadows[0]);
    result = Shadow::constant();
    return run(ctx);
  }
  return ctx.rec.live() ? changeOld(ctx, "add", pyapi::Lookup::kFound, result) : run(ctx);
}

// discard(), remove(), update() and the like, of constants.
Flow changeModel(CallContext& ctx, Shadow& result) {
  const Virtual* own = ownSet(ctx);
  if (own == nullptr || !own->parts.empty()) return unknown(ctx, result);
  for (size_t i = 1; i < ctx.total(); ++i) {
    if (!pinElements(ctx, i)) return unknown(ctx, result);
  }
  ctx.rec.objects.noteChange();
  result = Shadow::constant();
  return run(ctx);
}

Flow clearModel(CallContext& ctx, Shadow& result) {
  const bool old = ctx.total() == 1 && (ctx.shadows[0].isSource() || ctx.shadows[0].isConst());
  return old ? changeByEffect(ctx, "clear", {}, true, result) : changeModel(ctx, result);
}

Flow discardModel(CallContext& ctx, Shadow& result) {
  return ownSet(ctx) != nullptr ? changeModel(ctx, result)
                                : changeOld(ctx, "discard", pyapi::Lookup::kMissing, result);
}

// union(), issubset() and the like: the result is a new set, or a bool.
Flow pureModel(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!pinElements(ctx, i)) return unknown(ctx, result);
  }
  Flow flow = run(ctx);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  PyObject* made = ctx.act.peek(1);
  if (auto known = ctx.rec.objects.knownObject(made)) {  // a frozenset may be its own union
    result = *known;
  } else {
    result = PyAnySet_Check(made) ? ctx.rec.objects.newVirtual(VirtualKind::kSet, made) : Shadow::constant();
  }
  return flow;
}

constexpr ModelRow kRows[] = {
    {"builtins.set", setModel, gives("set")},
    {"builtins.frozenset", setModel, gives("frozenset")},
    {"builtins.set.add", addModel, gives("None")},
    {"builtins.set.discard", discardModel, gives("None")},
    {"builtins.set.remove", changeModel, gives("None").raises("KeyError")},
    {"builtins.set.update", changeModel, gives("None")},
    {"builtins.set.clear", clearModel, gives("None").runsNoPython()},
    {"builtins.set.difference_update", changeModel, gives("None")},
    {"builtins.set.intersection_update", changeModel, gives("None")},
    {"builtins.set.union", pureModel, gives("set")},
    {"builtins.set.intersection", pureModel, gives("set")},
    {"builtins.set.difference", pureModel, gives("set")},
    {"builtins.set.symmetric_difference", pureModel, gives("set")},
    {"builtins.set.issubset", pureModel, gives("bool")},
    {"builtins.set.issuperset", pureModel, gives("bool")},
    {"builtins.set.isdisjoint", pureModel, gives("bool")},
    {"builtins.set.copy", pureModel, gives("set").runsNoPython()},
    {"builtins.frozenset.union", pureModel, gives("frozenset")},
    {"builtins.frozenset.intersection", pureModel, gives("frozenset")},
    {"builtins.frozenset.difference", pureModel, gives("frozenset")},
    {"builtins.frozenset.issubset", pureModel, gives("bool")},
    {"builtins.frozenset.issuperset", pureModel, gives("bool")},
    {"builtins.frozenset.isdisjoint", pureModel, gives("bool")},
};

}  // namespace

// Pins all elements. False: this is not possible.
bool pinSet(RecordContext& rec, Shadow shadow, PyObject* set) {
  if (shadow.isValue()) return false;
  if (shadow.isVirtual()) {
    const Virtual& v = rec.objects.virtualOf(shadow);
    return v.kind == VirtualKind::kSet && v.parts.empty() && v.value == ir::kNone;
  }
  PyObject* item;
  Py_ssize_t at = 0;
  while (pyapi::nextSetItem(set, &at, &item)) {
    if (!isKnownMember(item)) return false;
  }
  return rec.guards.pinContainer(shadow, set);
}

bool hashesByIdentity(PyObject* object) {
  return pyapi::hashesByIdentity(object) && pyapi::comparesByIdentity(object);
}

bool isMemberByIdentity(Shadow item, PyObject* object) {
  if (torchapi::isTensor(object)) return !item.isVirtual() && torchapi::isExactTensorType(Py_TYPE(object));
  return item.isVirtual() && hashesByIdentity(object);
}

Shadow memberShadow(RecordContext& rec, Shadow item, PyObject* object) {
  if (torchapi::isTensor(object)) return rec.guards.tensorShadow(object, item);
  if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE)) rec.guards.guardTypeVersion(Py_TYPE(object));
  return item;
}

// Guards whether an object that is compared by identity is in a set of the trace.
bool pinMember(RecordContext& rec, Shadow item, PyObject* object, Shadow set) {
  Virtual& v = rec.objects.virtualOf(set);
  for (size_t i = 0; i < v.parts.size(); ++i) {
    if (!rec.guards.pinIdentity(item, object, v.parts[i], v.partObjects[i].get())) return false;
  }
  return rec.live();
}

void registerSetModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
