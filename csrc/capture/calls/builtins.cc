// Models: builtins and math.
#include <cmath>
#include <limits>

#include "capture/attributes.h"
#include "capture/calls/argument_iterator.h"
#include "capture/calls/lazy.h"
#include "capture/calls/model.h"
#include "capture/calls/numpy.h"
#include "capture/calls/open_lists.h"
#include "capture/calls/table.h"
#include "capture/classes.h"
#include "capture/foreign.h"
#include "capture/numbers.h"
#include "capture/open_values.h"
#include "capture/record/fallback.h"
#include "capture/shown.h"
#include "capture/sizes.h"
#include "capture/tables/pauses.h"
#include "pyapi/items.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::GuardKind;

namespace {

Flow lenModel(CallContext& ctx, Shadow& result) {
  PyObject* o = ctx.args[0];
  if (torchapi::isTensor(o)) return torchMetaModel(ctx, result);
  if (PyObject* method = pythonMethod(o, "__len__")) {
    if (auto flow = ctx.shadows[0].isValue() ? std::nullopt : enterPolyfill(ctx, "length_of", result))
      return *flow;
    PendingFrame pending = ctx.rec.callees.methodFrame(method, ctx.shadows[0], o);
    pending.rebuildable = false;
    pending.pinResult = true;
    ctx.rec.guards.guardType(ctx.shadows[0], o);
    ctx.rec.guards.guardTypeVersion(Py_TYPE(o));
    ctx.rec.callees.expectFrame(std::move(pending));
    Flow flow = run(ctx);
    if (ctx.rec.live() && flow == Flow::kNext && !ctx.rec.callees.returned().isConst()) {
      ctx.rec.abort(diag::Code::KTG0102, {"__len__"});
    }
    result = Shadow::constant();
    return flow;
  }
  Shadow shadow = ctx.shadows[0];
  if (shadow.isConst() && ctx.rec.guards.isFrozen(o)) return constantModel(ctx, result);
  if (shadow.isValue() || ctx.rec.objects.isDirty(o)) {
    ctx.rec.guards.guardType(shadow, o);
    return knownModel(ctx, result);
  }
  if (isVaryingText(ctx.rec, shadow, o)) {
    ctx.rec.guards.guardType(shadow, o);
    return ctx.rec.steps.callStep(ctx, CallKind::kPure, nullptr, result);
  }
  if (shadow.isVirtual() && ctx.rec.objects.virtualOf(shadow).kind == VirtualKind::kDeque) {
    result = Shadow::constant();
    return run(ctx);
  }
  bool view = shadow.isVirtual() && ctx.rec.objects.virtualOf(shadow).kind == VirtualKind::kDictView;
  if (view) {
    Virtual& v = ctx.rec.objects.virtualOf(shadow);
    ctx.rec.guards.pinLength(v.parts[0], v.partObjects[0].get());
  } else if (PyTuple_Check(o) || PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) ||
             PyUnicode_CheckExact(o)) {
    ctx.rec.guards.pinLength(shadow, o);
  } else if (!canFold(ctx.rec, shadow, o) || !ctx.rec.guards.tryPinDeep(shadow, o)) {
    return knownModel(ctx, result);
  }
  result = Shadow::constant();
  return run(ctx);
}

Flow typeModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() != 1) return newTypeModel(ctx, result);
  if (ctx.shadows[0].isSource()) ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
  result = virtualShadowOf(ctx.rec, Shadow::constant(), reinterpret_cast<PyObject*>(Py_TYPE(ctx.args[0])));
  return run(ctx);
}

// getattr and hasattr, by the same plan as LOAD_ATTR.
Flow getattrLike(CallContext& ctx, Shadow& result, bool has) {
  Shadow nameShadow = ctx.shadows[1];
  PyObject* o = ctx.args[0];
  Shadow shadow = ctx.shadows[0];
  if (!PyUnicode_CheckExact(ctx.args[1]) || !ctx.rec.guards.pin(nameShadow, ctx.args[1]))
    return opaqueModel(ctx, result);
  AttributePlan plan = planAttribute(ctx.rec, shadow, o, ctx.args[1]);
  // After an AttributeError the call goes on. A polyfill says so in Python, so that a property's code can be
  // left in the middle and gone on with.
  if (plan.how == AttributePlan::kFrame && ctx.rec.live() && (has || ctx.total() > 2)) {
    if (auto flow = enterPolyfill(ctx, has ? "has_attribute" : "attribute_or", result)) return *flow;
  }
  return readByPlan(ctx, std::move(plan), has, result);
}

Flow getattrModel(CallContext& ctx, Shadow& result) { return getattrLike(ctx, result, false); }
Flow hasattrModel(CallContext& ctx, Shadow& result) { return getattrLike(ctx, result, true); }

}  // namespace

Flow readByPlan(CallContext& ctx, AttributePlan plan, bool has, Shadow& result) {
  PyObject* o = ctx.args[0];
  Shadow shadow = ctx.shadows[0];
  if (!ctx.rec.live()) return run(ctx);
  if (plan.how == AttributePlan::kTorch) {
    // The code of its own class says whether such a tensor has it: each run asks.
    if (has && isForeign(shadow, o)) return ctx.rec.torch.torchStep(ctx, result);
    if (has) {
      result = Shadow::constant();
      const Paused paused(ctx.rec.pauses);
      return run(ctx);
    }
    ctx.onlyReadsMetadata = plan.onlyReadsMetadata;
    if (ctx.positional == ctx.popped) ctx.dispatchedCall = plan.dispatchedCall;
    return ctx.rec.torch.torchStep(ctx, result);
  }
  bool gone = plan.how == AttributePlan::kRaises;
  // As in record/attributes.cc, a step notices Python code that runs in it. Attributes of functions are only
  // read, by C code.
  if (plan.how == AttributePlan::kStep) {
    const bool reads = PyFunction_Check(o) && !has && !isRenamed(ctx.rec, o);
    const auto kind = reads ? CallKind::kPure : CallKind::kKnown;
    return ctx.rec.steps.callStep(ctx, kind, nullptr, result);
  }
  if (plan.how == AttributePlan::kFrame) {
    // With a default, the call goes on after an AttributeError, so an exit inside the frame is not possible
    // (where a polyfill could not take the call's place).
    plan.pending.rebuildable = !has && ctx.total() == 2 && ctx.popped > 0;
    plan.pending.site = ctx.rec.snapshots.callSite(ctx.instr, ctx.popped);
    ctx.rec.callees.expectFrame(std::move(plan.pending));
  }
  bool frame = plan.how == AttributePlan::kFrame;
  pyapi::Ref<> self = pyapi::newRef(o);
  Shadow fallback = ctx.total() > 2 ? ctx.shadows[2] : Shadow::constant();
  Flow flow;
  {
    std::optional<Paused> paused;
    if (plan.native) paused.emplace(ctx.rec.pauses);
    flow = run(ctx);
  }
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  if (has) {
    result = Shadow::constant();
  } else if (gone) {
    result = fallback;
  } else if (frame) {
    // An AttributeError of the property or of `__getattr__` gives the default.
    result = ctx.rec.expected.raised() ? fallback : ctx.rec.callees.returned();
  } else if (plan.how == AttributePlan::kMethod) {
    result = boundMethod(ctx.rec, ctx.act.peek(1), plan.function, Shadow::constant(), self.get(), shadow);
  } else if (plan.shadow.isNull()) {
    PyObject* bound = ctx.act.peek(1);
    if (PyMethod_Check(bound)) {
      result = boundMethod(ctx.rec, bound, PyMethod_GET_FUNCTION(bound), Shadow::constant(),
                           PyMethod_GET_SELF(bound), classValue(ctx.rec, PyMethod_GET_SELF(bound)));
    } else {
      result = ctx.rec.objects.newVirtual(VirtualKind::kOpaque, bound);
    }
  } else {
    result = plan.frozen ? frozenPart(ctx.rec, ctx.act.peek(1))
                         : virtualShadowOf(ctx.rec, plan.shadow, ctx.act.peek(1));
  }
  return flow;
}

namespace {

Flow callableModel(CallContext& ctx, Shadow& result) {
  ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
  ctx.rec.guards.guardTypeVersion(Py_TYPE(ctx.args[0]));  // the class may get a `__call__`
  result = Shadow::constant();
  return run(ctx);
}

// For a tensor whose sizes vary. With more or fewer elements than one, torch raises before any operator is
// called, so its sizes are pinned.
bool pinOneElement(CallContext& ctx) {
  Shadow shadow = ctx.shadows[0];
  if (shadow.isVirtual() || isForeign(shadow, ctx.args[0])) return true;
  shadow = ctx.rec.guards.tensorShadow(ctx.args[0], shadow);
  if (!ctx.rec.live()) return false;
  if (!shadow.isValue() || ctx.rec.torch.values().hasStaticMeta(shadow, ctx.args[0])) return true;
  if (torchapi::describe(ctx.args[0]).sizes.empty()) return true;
  return pinMeta(ctx.rec, shadow, ctx.args[0]);
}

// int(), float(), bool() of tensors, run-time numbers and constants.
Flow numberModel(CallContext& ctx, Shadow& result, ir::TypeKind kind) {
  if (ctx.total() != 1) return foldModel(ctx, result);
  PyObject* o = ctx.args[0];
  if (torchapi::isTensor(o)) {
    if (!pinOneElement(ctx)) return run(ctx);
    return torchModel(ctx, result);
  }
  const bool raises = kind == ir::TypeKind::kInt && PyFloat_Check(o) && !std::isfinite(PyFloat_AS_DOUBLE(o));
  if (ctx.shadows[0].isValue() && !raises) {
    if (auto converted = numberConvert(ctx.rec, kind, ctx.shadows[0], o)) {
      result = *converted;
      return run(ctx);
    }
  }
  if (kind == ir::TypeKind::kBool && ctx.kwnames == nullptr) {
    const char* asked = ctx.shadows[0].isValue() ? nullptr : truthFunction(o);
    if (auto flow = asked != nullptr ? enterPolyfill(ctx, asked, result) : std::nullopt) return *flow;
    if (!ctx.rec.guards.pinTruth(ctx.shadows[0], o)) return run(ctx);
    result = Shadow::constant();
    return run(ctx);
  }
  PyObject* hook = pythonMethod(o, kind == ir::TypeKind::kInt ? "__int__" : "__float__");
  return hook != nullptr ? opaqueModel(ctx, result) : foldModel(ctx, result);
}
Flow intModel(CallContext& ctx, Shadow& result) { return numberModel(ctx, result, ir::TypeKind::kInt); }
Flow floatModel(CallContext& ctx, Shadow& result) { return numberModel(ctx, result, ir::TypeKind::kFloat); }
Flow boolModel(CallContext& ctx, Shadow& result) { return numberModel(ctx, result, ir::TypeKind::kBool); }

Flow strModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() == 1 && pinText(ctx.rec, ctx.shadows[0], ctx.args[0])) {
    result = Shadow::constant();
    return run(ctx);
  }
  if (ctx.total() == 1 && !isPlainDeep(ctx.args[0]) && !isIdentityValue(ctx.args[0])) {
    CallKind kind = ctx.rec.steps.stepKind(ctx.args[0]);
    return ctx.rec.steps.callStep(ctx, kind, nullptr, result);
  }
  return ctx.total() > 0 && ctx.rec.guards.comesFromStep(ctx.shadows[0]) ? knownModel(ctx, result)
                                                                         : foldModel(ctx, result);
}

Flow iterModel(CallContext& ctx, Shadow& result) {
  PyObject* o = ctx.args[0];
  Shadow shadow = ctx.shadows[0];
  if (ctx.total() == 2 && ctx.kwnames == nullptr) return iterUntilModel(ctx, result);
  if (ctx.total() != 1) return opaqueModel(ctx, result);
  ctx.rec.guards.guardType(shadow, o);  // decides how to iterate
  if (PyObject* method = pythonMethod(o, "__iter__")) {
    PendingFrame pending = ctx.rec.callees.methodFrame(method, shadow, o);
    ctx.rec.guards.guardTypeVersion(Py_TYPE(o));
    pending.site = ctx.rec.snapshots.callSite(ctx.instr, ctx.popped);
    ctx.rec.callees.expectFrame(std::move(pending));
    Flow flow = run(ctx);
    if (flow == Flow::kNext && ctx.rec.live()) result = ctx.rec.callees.frameResult(ctx.act.peek(1));
    return flow;
  }
  if (pyapi::isOwnIterator(o) || PyGen_CheckExact(o)) {
    result = shadow;
    return run(ctx);
  }
  if (shadow.isValue() || !ctx.rec.objects.iterated(shadow, o)) {
    return ctx.rec.live() ? knownModel(ctx, result) : run(ctx);
  }
  pyapi::Ref<> container = pyapi::newRef(o);
  Flow flow = run(ctx);
  if (flow == Flow::kNext && ctx.rec.live())
    result = ctx.rec.objects.newIterator(ctx.act.peek(1), shadow, container.get());
  return flow;
}

// True for what C code makes of an array, by its length and items.
bool iteratesArray(PyObject* iterator) {
  if (Py_TYPE(iterator) != &PySeqIter_Type) return false;
  const pyapi::Ref<> parts = pyapi::steal(PyObject_CallMethod(iterator, "__reduce__", nullptr));
  PyErr_Clear();
  PyObject* given = parts && PyTuple_GET_SIZE(parts.get()) > 1 ? PyTuple_GET_ITEM(parts.get(), 1) : nullptr;
  return given != nullptr && PyTuple_Check(given) && PyTuple_GET_SIZE(given) == 1 &&
         isArray(PyTuple_GET_ITEM(given, 0));
}

// True for an iterator of the trace, so that the trace knows what comes next.
bool isFollowed(RecordContext& rec, Shadow iterator) {
  return iterator.isVirtual() && isConsumed(rec.objects.virtualOf(iterator)) &&
         rec.objects.virtualOf(iterator).value == ir::kNone;
}

// A step. Iterators of builtin containers and of arrays call no other code.
Flow unknownNext(CallContext& ctx, Shadow& result) {
  static const std::unordered_set<PyTypeObject*> plain = {
      &PyListIter_Type,    &PyTupleIter_Type,    &PyRangeIter_Type,
      &PyDictIterKey_Type, &PyDictIterItem_Type, &PyDictIterValue_Type,
      &PySetIter_Type,     &PyUnicodeIter_Type,  &PyBytesIter_Type};
  const bool known = plain.contains(Py_TYPE(ctx.args[0])) || iteratesArray(ctx.args[0]);
  return known ? knownModel(ctx, result) : opaqueModel(ctx, result);
}

Flow nextModel(CallContext& ctx, Shadow& result) {
  Shadow iterator = ctx.shadows[0];
  PyObject* o = ctx.args[0];
  const bool hasDefault = ctx.total() > 1;
  CallSite site = ctx.rec.snapshots.callSite(
      ctx.instr, ctx.popped, {}, hasDefault ? ir::ReturnAction::kNextOr : ir::ReturnAction::kNext);
  if (hasDefault) {
    site.replacement = ctx.shadows[1];
    site.replacementObject = pyapi::newRef(ctx.args[1]);
  }
  if (PyObject* method = pythonMethod(o, "__next__")) {
    PendingFrame pending = ctx.rec.callees.methodFrame(method, iterator, o);
    pending.site = std::move(site);
    ctx.rec.guards.guardType(iterator, o);
    ctx.rec.guards.guardTypeVersion(Py_TYPE(o));
    Shadow fallback = hasDefault ? ctx.shadows[1] : Shadow::constant();
    ctx.rec.callees.expectFrame(std::move(pending));
    Flow flow = run(ctx);
    if (flow == Flow::kNext && ctx.rec.live())
      result = hasDefault && ctx.rec.expected.raised() ? fallback : ctx.rec.callees.returned();
    return flow;
  }
  if (isLazyIterator(ctx.rec, iterator) && ctx.kwnames == nullptr) {
    const bool map = Py_TYPE(o) == &PyMap_Type;
    if (PyObject* function = polyfill(map ? "next_of_map" : "next_of_filter"))
      return callInstead(ctx, function, result);
  }
  if (!isFollowed(ctx.rec, iterator)) return unknownNext(ctx, result);
  if (!ctx.rec.objects.prepareNext(iterator, std::move(site))) return run(ctx);
  Shadow fallback = hasDefault ? ctx.shadows[1] : Shadow::constant();
  const pyapi::Ref<> other = pyapi::newRef(hasDefault ? ctx.args[1] : nullptr), object = pyapi::newRef(o);
  const bool generator = ctx.rec.objects.virtualOf(iterator).kind == VirtualKind::kGenerator;
  bool exhausted =
      generator ? ctx.rec.objects.virtualOf(iterator).frame == nullptr : ctx.rec.objects.exhausted(iterator);
  Flow flow = run(ctx);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  const pyapi::SequenceIterator* sequence = pyapi::sequenceIteratorOf(object.get());
  exhausted = exhausted || (generator && !ctx.rec.expected.gaveItem()) ||
              (sequence != nullptr && sequence->sequence == nullptr);
  if (other && (exhausted || (ctx.rec.expected.raised() && ctx.act.peek(1) == other.get()))) {
    result = fallback;
    return flow;
  }
  auto item = ctx.rec.objects.advance(iterator, ctx.act.peek(1));
  if (!item) ctx.rec.abort(diag::Code::KTG0101, {"next"});
  result = item.value_or(Shadow::constant());
  return flow;
}

// A range is always a new object, and whoever uses it needs its numbers (above all a loop), so these are
// pinned.
Flow rangeModel(CallContext& ctx, Shadow& result) {
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    const bool number = isPlain(ctx.args.any(i)) || pyapi::isNumpyNumber(ctx.args.any(i));
    if (!number || !ctx.rec.guards.canPinDeep(shadows[i], ctx.args.any(i))) {
      return foldModel(ctx, result);
    }
  }
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  return constantModel(ctx, result);
}

// The shadow of the iterator that C code will make for an argument of enumerate() or zip(). It has an
// iterator of its own as its object until the real one is there (takeIterators).
std::optional<Shadow> innerIterator(CallContext& ctx, size_t i) {
  PyObject* o = ctx.args.any(i);
  Shadow shadow = ctx.shadows.any(i);
  if (shadow.isVirtual()) {
    VirtualKind kind = ctx.rec.objects.virtualOf(shadow).kind;
    if (kind == VirtualKind::kIterator || kind == VirtualKind::kEnumerate || kind == VirtualKind::kZip ||
        kind == VirtualKind::kGenerator) {
      return shadow;
    }
  }
  if (shadow.isValue() || pythonMethod(o, "__iter__") != nullptr) return std::nullopt;
  if (!ctx.rec.objects.iterated(shadow, o)) return std::nullopt;
  pyapi::Ref<> stand = pyapi::steal(PyObject_GetIter(o));
  return ctx.rec.objects.newIterator(stand.get(), shadow, o);
}

// Puts the real iterators that C code has made in place of those. `iterators` are the parts that the object's
// `__reduce__` shows; null: none.
void takeIterators(RecordContext& rec, PyObject* iterators, const std::vector<size_t>& made,
                   const Shadows& parts, Refs& objects) {
  if (iterators == nullptr) return;
  for (const size_t part : made) {
    PyObject* real = PyTuple_GET_ITEM(iterators, static_cast<Py_ssize_t>(part));
    rec.objects.replaceObject(parts[part], real);
    objects[part] = pyapi::newRef(real);
  }
}

// The number that enumerate() counts from. False if the count may overflow 64 bits.
bool startOf(CallContext& ctx, int64_t& start) {
  Shadow shadow = ctx.shadows.any(1);
  PyObject* number = ctx.args.any(1);
  int beyond = 0;
  if (!PyLong_CheckExact(number)) return false;
  start = PyLong_AsLongLongAndOverflow(number, &beyond);
  return beyond == 0 && start < std::numeric_limits<int64_t>::max() / 2 && ctx.rec.guards.pin(shadow, number);
}

Flow iteratorType(CallContext& ctx, Shadow& result, VirtualKind kind, size_t first) {
  const auto given = ctx.shadows.slice(0, first);
  Shadows parts(given.begin(), given.end());
  Refs objects;
  for (size_t i = 0; i < first; ++i) objects.push_back(pyapi::newRef(ctx.args.any(i)));
  size_t count = kind == VirtualKind::kEnumerate ? 1 : ctx.positional;
  int64_t start = 0;
  bool ok = ctx.positional >= count;
  std::vector<size_t> python;  // the parts whose __iter__ is Python
  std::vector<size_t> made;    // the parts whose iterators C code makes
  if (kind == VirtualKind::kEnumerate && ctx.total() == 2) {
    ok = ctx.positional == 2 || (ctx.positional == 1 && ctx.keyword("start"));
    ok = ok && startOf(ctx, start);
  } else if (ctx.kwnames != nullptr) {
    Shadow s = ctx.shadows.any(ctx.positional);  // zip(..., strict=)
    ok = ok && kind == VirtualKind::kZip && ctx.total() == ctx.positional + 1 && ctx.keyword("strict") &&
         ctx.rec.guards.pin(s, ctx.args.any(ctx.positional));
    start = ok ? PyObject_IsTrue(ctx.args.any(ctx.positional)) : 0;
  }
  for (size_t i = first; ok && i < count; ++i) {
    if (PyObject* hook = pythonMethod(ctx.args.any(i), "__iter__")) {
      bool next = !python.empty();
      python.push_back(parts.size());
      parts.push_back(Shadow::null());
      objects.emplace_back();
      PendingFrame pending = ctx.rec.callees.methodFrame(hook, ctx.shadows.any(i), ctx.args.any(i));
      ctx.rec.guards.guardType(ctx.shadows.any(i), ctx.args.any(i));
      ctx.rec.guards.guardTypeVersion(Py_TYPE(ctx.args.any(i)));
      pending.rebuildable = false;
      if (next) {
        ctx.rec.callees.expectThen(std::move(pending));
      } else {
        ctx.rec.callees.expectFrame(std::move(pending));
      }
      continue;
    }
    auto inner = innerIterator(ctx, i);
    ok = inner.has_value();
    if (!ok) break;
    if (!ctx.shadows.any(i).isVirtual() || ctx.shadows.any(i).virtualId() != inner->virtualId())
      made.push_back(parts.size());
    parts.push_back(*inner);
    objects.push_back(pyapi::newRef(ctx.rec.objects.virtualOf(*inner).object.get()));
  }
  bool kept = false;
  for (size_t i = 0; i < ctx.positional; ++i) kept = kept || isLazyIterator(ctx.rec, ctx.shadows.any(i));
  if (!ok && kept && python.empty() && ctx.rec.live()) return opaqueModel(ctx, result);
  if (!ok) {
    ctx.rec.abort(diag::Code::KTG0101, {pyapi::typeName(reinterpret_cast<PyTypeObject*>(ctx.callable))});
    return run(ctx);
  }
  Flow flow = runVirtual(ctx, kind, result);
  pyapi::Ref<> reduced = pyapi::steal(
      flow != Flow::kNext ? nullptr : PyObject_CallMethod(ctx.act.peek(1), "__reduce__", nullptr));
  PyObject* iterators = reduced ? PyTuple_GET_ITEM(reduced.get(), 1) : nullptr;
  for (size_t i = 0; flow == Flow::kNext && ctx.rec.live() && i < python.size(); ++i) {
    PyObject* real = PyTuple_GET_ITEM(iterators, static_cast<Py_ssize_t>(python[i]));
    Shadow inner = PyGen_CheckExact(real)                  ? ctx.rec.callees.frameResult(real)
                   : i < ctx.rec.expected.results().size() ? ctx.rec.expected.results()[i]
                                                           : ctx.rec.callees.returned();
    if (!inner.isVirtual()) {
      ctx.rec.abort(diag::Code::KTG0101, {"__iter__"});
      break;
    }
    parts[python[i]] = inner;
    objects[python[i]] = ctx.rec.objects.virtualOf(inner).object.clone();
  }
  takeIterators(ctx.rec, iterators, made, parts, objects);
  if (flow == Flow::kNext && ctx.rec.live()) {
    Virtual& v = ctx.rec.objects.virtualOf(result);
    v.parts = std::move(parts);
    v.partObjects = std::move(objects);
    v.index = start;
  }
  return flow;
}
Flow enumerateModel(CallContext& ctx, Shadow& result) {
  if (auto flow = iterateInstead(ctx, "enumerate_", result)) return *flow;
  return iteratorType(ctx, result, VirtualKind::kEnumerate, 0);
}
Flow zipModel(CallContext& ctx, Shadow& result) {
  if (auto flow = iterateInstead(ctx, "zip_", result)) return *flow;
  return iteratorType(ctx, result, VirtualKind::kZip, 0);
}

}  // namespace

namespace {

// What is among the operands of a reduction: its arguments, and the elements of lists and tuples.
struct Operands {
  bool tensors = false;
  bool numbers = false;  // run-time numbers
};

Operands operandsOf(CallContext& ctx) {
  Operands found;
  const auto look = [&](Shadow shadow, PyObject* object) {
    found.tensors = found.tensors || torchapi::isTensor(object);
    found.numbers = found.numbers || isNumberValue(ctx.rec, promoted(ctx.rec, shadow, object));
  };
  for (size_t i = 0; i < ctx.total(); ++i) {
    PyObject* argument = ctx.args.any(i);
    look(ctx.shadows.any(i), argument);
    if (!PyTuple_Check(argument) && !PyList_Check(argument)) continue;
    auto parts = ctx.rec.objects.elementsOf(ctx.shadows.any(i), argument);
    PyObject** items = PySequence_Fast_ITEMS(argument);
    for (size_t k = 0; parts && k < parts->size(); ++k) look((*parts)[k], items[k]);
  }
  return found;
}

}  // namespace

// all(), any(), sum(), min() and max() of an iterable over which C code iterates by itself.
Flow reduceModel(CallContext& ctx, Shadow& result, bool adds) {
  if (auto flow = reduceOpenList(ctx, result)) return *flow;
  if (auto flow = consumeOpen(ctx, result)) return *flow;
  bool constant = true;
  for (size_t i = 0; i < ctx.total(); ++i)
    constant = constant && ctx.rec.guards.canPinDeep(ctx.shadows.any(i), ctx.args.any(i));
  if (constant) return foldModel(ctx, result);
  bool generator = ctx.total() == 1 && ctx.shadows[0].isVirtual() &&
                   ctx.rec.objects.virtualOf(ctx.shadows[0]).kind == VirtualKind::kGenerator;
  if (generator) {
    ctx.rec.callees.expectItems(ctx.shadows[0]);
    Flow flow = run(ctx);
    for (Shadow item : ctx.rec.callees.takeItems()) {
      if (!item.isConst() && ctx.rec.live()) ctx.rec.abort(diag::Code::KTG0103, {"the items of a generator"});
    }
    result = Shadow::constant();
    return flow;
  }
  // sum() of tensors adds them. The other functions compare the items or ask for their truth: each run makes
  // the call again, and the result is one of the items or a bool.
  const Operands operands = adds ? operandsOf(ctx) : Operands();
  if (!ctx.rec.live()) return run(ctx);
  if (!operands.tensors) return knownModel(ctx, result);
  if (operands.numbers) {
    if (auto flow = enterPolyfill(ctx, "sum_", result)) return *flow;
  }
  ctx.pinNumbers = true;
  return torchModel(ctx, result);
}

namespace {

// min() and max() of run-time numbers. A guard on each comparison, in C code's order, says which of them is
// the result.
std::optional<Shadow> extreme(CallContext& ctx, int op) {
  std::vector<PyObject*> items(ctx.args.begin(), ctx.args.end());
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  if (ctx.kwnames != nullptr || items.empty()) return std::nullopt;
  if (items.size() == 1) {
    if (!PyTuple_Check(items[0]) && !PyList_CheckExact(items[0])) return std::nullopt;
    PyObject* all = items[0];
    auto parts = ctx.rec.objects.elementsOf(shadows[0], all);
    if (!parts || parts->empty()) return std::nullopt;
    shadows = std::move(*parts);
    items.assign(PySequence_Fast_ITEMS(all), PySequence_Fast_ITEMS(all) + shadows.size());
  }
  bool any = false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!PyLong_CheckExact(items[i]) && !PyFloat_CheckExact(items[i])) return std::nullopt;
    shadows[i] = promoted(ctx.rec, shadows[i], items[i]);
    any = any || shadows[i].isValue();
  }
  if (!any) return std::nullopt;
  size_t found = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const bool better = PyObject_RichCompareBool(items[i], items[found], op) == 1;
    if (shadows[i].isValue() || shadows[found].isValue()) {
      auto truth = numberCompare(ctx.rec, op, shadows[i], items[i], shadows[found], items[found]);
      if (!truth || !ctx.rec.guards.guardTruth(truth->valueId(), better)) return std::nullopt;
    } else if (!ctx.rec.guards.pin(shadows[i], items[i]) ||
               !ctx.rec.guards.pin(shadows[found], items[found])) {
      return std::nullopt;
    }
    if (better) found = i;
  }
  return shadows[found];
}

}  // namespace

Flow extremeModel(CallContext& ctx, Shadow& result, int op) {
  if (auto flow = reduceOpenList(ctx, result)) return *flow;
  if (auto flow = consumeOpen(ctx, result)) return *flow;
  auto found = extreme(ctx, op);
  if (!found) return ctx.rec.live() ? reduceModel(ctx, result) : run(ctx);
  result = *found;
  return run(ctx);
}

namespace {

Flow reversedModel(CallContext& ctx, Shadow& result) {
  PyObject* o = ctx.args[0];
  auto parts =
      PyTuple_Check(o) || PyList_Check(o) ? ctx.rec.objects.elementsOf(ctx.shadows[0], o) : std::nullopt;
  const bool range = PyRange_Check(o) && PyObject_Size(o) >= 0;
  PyErr_Clear();
  if (!parts && range && ctx.shadows[0].isConst()) {
    pyapi::Ref<> step = pyapi::steal(PyLong_FromLong(-1));
    pyapi::Ref<> whole = pyapi::steal(PySlice_New(nullptr, nullptr, step.get()));
    pyapi::Ref<> turned = whole ? pyapi::steal(PyObject_GetItem(o, whole.get())) : pyapi::Ref<>();
    if (!turned) PyErr_Clear();
    Flow flow = run(ctx);
    if (flow == Flow::kNext && turned && ctx.rec.live())
      result = ctx.rec.objects.newIterator(ctx.act.peek(1), Shadow::constant(), turned.get());
    return flow;
  }
  if (!parts) return reversedObject(ctx, result);
  if (PyList_Check(o)) {
    const pyapi::Ref<> list = pyapi::newRef(o);
    const Shadow shadow = ctx.shadows[0];
    Flow flow = run(ctx);
    if (flow == Flow::kNext && ctx.rec.live())
      result = ctx.rec.objects.newIterator(ctx.act.peek(1), shadow, list.get());
    return flow;
  }
  // The iterator is described as one over a reversed copy, which gives the same items in the same order.
  pyapi::Ref<> turned = pyapi::steal(PyTuple_New(PyTuple_GET_SIZE(o)));
  for (Py_ssize_t i = 0, n = PyTuple_GET_SIZE(o); i < n; ++i) {
    PyTuple_SET_ITEM(turned.get(), i, Py_NewRef(PyTuple_GET_ITEM(o, n - 1 - i)));
  }
  Shadows back(parts->rbegin(), parts->rend());
  Shadow tuple = ctx.rec.objects.tupleOf(turned.get(), std::move(back));
  Flow flow = run(ctx);
  if (flow == Flow::kNext && ctx.rec.live())
    result = ctx.rec.objects.newIterator(ctx.act.peek(1), tuple, turned.get());
  return flow;
}

Flow superModel(CallContext& ctx, Shadow& result) {
  PyObject *type = nullptr, *self = nullptr;
  Shadow selfShadow;
  if (ctx.total() == 2) {
    type = ctx.args[0];
    self = ctx.args[1];
    selfShadow = ctx.shadows[1];
    Shadow t = ctx.shadows[0];
    if (!pinClasses(ctx.rec, t, type)) return run(ctx);
    ctx.rec.guards.guardType(selfShadow, self);  // decides which classes are searched
  } else if (ctx.total() == 0) {
    // super() without arguments: the class is in the free variable `__class__`, the object is the frame's
    // first local.
    ctx.rec.callees.superArguments(ctx.frame, type, self, selfShadow);
  }
  if (type == nullptr || self == nullptr) {
    ctx.rec.abort(diag::Code::KTG0101, {"super"});
    return run(ctx);
  }
  pyapi::Ref<> keptType = pyapi::newRef(type), keptSelf = pyapi::newRef(self);
  Flow flow = runVirtual(ctx, VirtualKind::kSuper, result);
  if (flow == Flow::kNext && ctx.rec.live()) {
    Virtual& v = ctx.rec.objects.virtualOf(result);
    v.parts = {Shadow::constant(), selfShadow};
    v.partObjects.push_back(std::move(keptType));
    v.partObjects.push_back(std::move(keptSelf));
  }
  return flow;
}

Flow sliceModel(CallContext& ctx, Shadow& result) {
  Shadows parts(ctx.shadows.begin(), ctx.shadows.end());
  if (parts.size() == 1) parts.insert(parts.begin(), Shadow::constant());
  parts.resize(3, Shadow::constant());
  Flow flow = runVirtual(ctx, VirtualKind::kSlice, result);
  if (flow == Flow::kNext && ctx.rec.live()) ctx.rec.objects.virtualOf(result).parts = std::move(parts);
  return flow;
}

// `module.__getattribute__(name)`, which torch's modules with settings call. A plain module has no other way
// to read an attribute.
Flow moduleGetattributeModel(CallContext& ctx, Shadow& result) {
  const bool plain = ctx.total() == 2 && ctx.kwnames == nullptr && PyModule_CheckExact(ctx.args[0]);
  return plain ? getattrModel(ctx, result) : opaqueModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    {"builtins.len", lenModel, gives("int")},
    {"builtins.type", typeModel, gives("any: a class, of whatever metaclass")},
    {"builtins.getattr", getattrModel, gives(kAnItem).raises(kFromFunction)},
    {"types.ModuleType.__getattribute__", moduleGetattributeModel, gives(kAnItem)},
    {"builtins.hasattr", hasattrModel, gives("bool")},
    {"builtins.callable", callableModel, gives("bool").runsNoPython()},
    {"builtins.int", intModel, gives("int").raises("ValueError")},
    {"builtins.float", floatModel, gives("float").raises("ValueError")},
    {"builtins.bool", boolModel, gives("bool").raises("RuntimeError ValueError")},
    {"builtins.str", strModel, gives("str")},
    {"builtins.repr", strModel, gives("str")},
    {"builtins.ascii", strModel, gives("str")},
    {"builtins.format", strModel, gives("str").raises("ValueError")},
    {"builtins.iter", iterModel, gives(kOfOperands)},
    {"builtins.next", nextModel, gives(kAnItem).raises(kFromFunction)},
    {"builtins.range", rangeModel, gives("range").raises("ValueError")},
    {"builtins.enumerate", enumerateModel, gives("enumerate")},
    {"builtins.zip", zipModel, gives("zip").raises("ValueError")},
    {"builtins.sum", sumModel, gives(kOfOperands)},
    {"builtins.reversed", reversedModel, gives(kOfOperands)},
    {"builtins.super", superModel, gives("super").raises("RuntimeError")},
    {"builtins.slice", sliceModel, gives("slice").runsNoPython()},
};

}  // namespace

void registerBuiltinModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
