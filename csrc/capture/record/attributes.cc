// Record handlers: attribute access.
#include "capture/attributes.h"
#include "capture/callee.h"
#include "capture/calls/model.h"
#include "capture/class_attributes.h"
#include "capture/classes.h"
#include "capture/sizes.h"
#include "capture/tables/pauses.h"
#include "capture/tensor_attributes.h"

#include "capture/handlers/handlers.h"
#include "capture/record/second_half.h"
#include "capture/record/table.h"
#include "pyapi/code.h"
#include "pyapi/lazy.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

PyObject* builtin(const char* name) { return PyDict_GetItemString(PyEval_GetBuiltins(), name); }

PyObject* setattrFunction() {
  static constinit pyapi::Lazy<PyObject*> slot;
  return slot.get([] { return Py_NewRef(builtin("setattr")); });
}

PyObject* delattrFunction() {
  static constinit pyapi::Lazy<PyObject*> slot;
  return slot.get([] { return Py_NewRef(builtin("delattr")); });
}

CallContext getattrContext(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in,
                           PyObject** args, Shadow* shadows) {
  static constinit pyapi::Lazy<PyObject*> getattrSlot;
  PyObject* getattr = getattrSlot.get([] { return Py_NewRef(builtin("getattr")); });
  return CallContext(rec, f, act, in).of(getattr, Shadow::constant(), args, shadows, 2);
}

// The shadow of a bound method that C code or CPython has just made.
Shadow describeBound(RecordContext& rec, PyObject* result, Shadow selfShadow, PyObject* self) {
  if (PyMethod_Check(result)) {
    PyObject* function = PyMethod_GET_FUNCTION(result);
    PyObject* bound = PyMethod_GET_SELF(result);
    Shadow boundShadow = bound == self ? selfShadow : classValue(rec, bound);
    return boundMethod(rec, result, function, Shadow::constant(), bound, boundShadow);
  }
  if (auto known = rec.objects.knownObject(result)) return *known;
  if (PyFunction_Check(result) || PyType_Check(result) || isPlain(result)) return Shadow::constant();
  if (PyCFunction_Check(result) && PyType_Check(PyCFunction_GET_SELF(result)))
    return Shadow::constant();  // C classmethod
  return rec.objects.newVirtual(VirtualKind::kOpaque, result);
}

// The call site of a getter. LOAD_METHOD pushes the getter's result with a null beside it.
CallSite getterSite(RecordContext& rec, const Instr& in, bool method) {
  if (!method) return rec.snapshots.callSite(in, 1);
  return pyapi::kNullBelowCallable ? rec.snapshots.callSite(in, 1, {Shadow::null()})
                                   : rec.snapshots.callSite(in, 1, {}, ir::ReturnAction::kCallable);
}

// Pushes the result of LOAD_ATTR or LOAD_METHOD.
void pushFound(ShadowFrame& f, bool method, Shadow found) {
  if (method) {
    pushCallable(f, found);
  } else {
    f.push(found);
  }
}

// `super().name` is looked up in the classes after the given one, and bound to the object.
Flow loadFromSuper(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject* name,
                   bool method) {
  Shadow superShadow = f.top();
  Virtual& v = rec.objects.virtualOf(superShadow);
  pyapi::Ref<> self = v.partObjects[1].clone();
  Shadow selfShadow = v.parts[1];
  auto* start = reinterpret_cast<PyTypeObject*>(v.partObjects[0].get());
  auto* type =
      PyType_Check(self.get()) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(self.get()), start)
          ? reinterpret_cast<PyTypeObject*>(self.get())
          : Py_TYPE(self.get());
  rec.guards.guardTypeVersion(type);
  if (const TypeEntry entry = typeEntry(rec, type, name, start); entry.open) {
    Shadow pinned = entry.shadow;  // super() is rarely asked for an open attribute
    if (!rec.guards.pin(pinned, entry.value)) return rec.execute(act, in);
  }
  if (!rec.live()) return rec.execute(act, in);
  PyObject* found = nullptr;
  PyTypeObject* owner = nullptr;
  PyObject* mro = pyapi::mroOf(type);
  bool after = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro) && found == nullptr; ++i) {
    auto* cls = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (after) found = PyDict_GetItemWithError(pyapi::dictOf(cls), name);
    after = after || cls == start;
    owner = cls;
  }
  if (found != nullptr && isProperty(found)) {
    PyObject* getter = reinterpret_cast<PyObject**>(found)[2];
    if (getter != nullptr && PyFunction_Check(getter)) {
      PendingFrame pending = rec.callees.methodFrame(getter, selfShadow, self.get());
      pending.site = getterSite(rec, in, method);
      rec.callees.expectFrame(std::move(pending));
    }
  }
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(1);
  PyObject* result = act.peek(method ? kPushedCallable : 1);
  const auto push = [&](Shadow shadow) { pushFound(f, method, shadow); };
  if (found != nullptr && isProperty(found)) {
    push(rec.callees.returned());
  } else if (found != nullptr && !PyMethod_Check(result) && !PyFunction_Check(result) &&
             pyapi::isMethodLike(found)) {
    push(boundMethod(rec, result, found, Shadow::constant(), self.get(), selfShadow));
  } else if (found != nullptr && found == result) {
    push(virtualClassAttribute(rec, owner, name, found).value_or(classValue(rec, result)));
  } else {
    push(describeBound(rec, result, selfShadow, self.get()));
  }
  return flow;
}

Flow loadByPlan(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject* name,
                bool method) {
  Shadow shadow = f.top();
  pyapi::Ref<> object = pyapi::newRef(act.peek(1));
  if (shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kSuper) {
    return loadFromSuper(rec, f, act, in, name, method);
  }
  AttributePlan plan = planAttribute(rec, shadow, object.get(), name);
  if (!rec.live()) return rec.execute(act, in);
  if (plan.how == AttributePlan::kStep || plan.how == AttributePlan::kTorch) {
    PyObject* args[] = {object.get(), name};
    Shadow shadows[] = {shadow, Shadow::constant()};
    CallContext ctx = getattrContext(rec, f, act, in, args, shadows);
    ctx.onlyReadsMetadata = plan.onlyReadsMetadata;
    ctx.popped = 1;
    if (!method) ctx.dispatchedCall = plan.dispatchedCall;
    ctx.resultDepth = method ? kPushedCallable : 1;
    Shadow result;
    Flow flow = plan.how == AttributePlan::kTorch
                    ? rec.torch.torchStep(ctx, result)
                    : rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
    if (flow != Flow::kNext || !rec.live()) return flow;
    f.drop(1);
    pushFound(f, method, result);
    return flow;
  }
  if (plan.how == AttributePlan::kFrame) {
    plan.pending.site = getterSite(rec, in, method);
    rec.callees.expectFrame(std::move(plan.pending));
  }
  Flow flow;
  {
    std::optional<Paused> paused;
    if (plan.native) paused.emplace(rec.pauses);
    flow = rec.execute(act, in);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(1);
  const bool unbound = method && callsMethod(act, 2);  // the method and its self were pushed
  if (plan.how == AttributePlan::kMethod && unbound) {
    f.push(virtualShadowOf(rec, Shadow::constant(), plan.function));
    f.push(shadow);
    return flow;
  }
  PyObject* result = act.peek(method ? kPushedCallable : 1);
  const auto push = [&](Shadow found) { pushFound(f, method, found); };
  switch (plan.how) {
    case AttributePlan::kMethod:
      push(boundMethod(rec, result, plan.function, Shadow::constant(), object.get(), shadow));
      break;
    case AttributePlan::kFrame:
      push(rec.callees.frameResult(result));
      break;
    default:
      push(plan.shadow.isNull() ? describeBound(rec, result, shadow, object.get())
           : plan.frozen        ? frozenPart(rec, result)
                                : virtualShadowOf(rec, plan.shadow, result));
  }
  return flow;
}

Flow loadAttr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  return loadByPlan(rec, f, act, in, pyapi::nameAt(f.code, in.arg), false);
}

Flow loadMethod(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  return loadByPlan(rec, f, act, in, pyapi::nameAt(f.code, in.arg), true);
}

// The object is not tracked by the trace: each run calls the function (`setattr` or `delattr`) again. The
// stack has the object on top, and below it the value, if there is one.
Flow changeByStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject* function) {
  const size_t count = function == setattrFunction() ? 2 : 1;  // that the instruction pops
  PyObject* args[3] = {act.peek(1), pyapi::nameAt(f.code, in.arg)};
  Shadow shadows[3] = {f.top(1), Shadow::constant()};
  if (count == 2) {
    args[2] = act.peek(2);
    shadows[2] = f.top(2);
  }
  const std::optional<CallKind> kind = storeKind(rec, args[0], args[1]);
  if (!kind || !rec.snapshots.escape(shadows[0], args[0]) ||
      (count == 2 && !rec.snapshots.escape(shadows[2], args[2])))
    return rec.execute(act, in);
  if (torchapi::isTensor(args[0])) {
    if (auto value = rec.ops().valueOf(args[0])) forgetMeta(rec, *value);
    noteWriteToTensor(rec, shadows[0], args[0], args[1]);
  }
  CallContext ctx(rec, f, act, in);
  ctx.of(function, Shadow::constant(), args, shadows, count + 1);
  ctx.pushes = false;
  Shadow ignored;
  Flow flow = rec.steps.callStep(ctx, *kind, nullptr, ignored);
  if (flow == Flow::kNext && rec.live()) f.drop(count);
  return flow;
}

Flow storeAttr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* name = pyapi::nameAt(f.code, in.arg);
  PyObject* object = act.peek(1);
  PyObject* value = act.peek(2);
  Shadow shadow = f.top(1);
  if (torchapi::isTensor(object)) return changeByStep(rec, f, act, in, setattrFunction());
  PyObject* setter = nullptr;
  if (!rec.stores.planStore(shadow, object, name, f.top(2), value, setter)) return rec.execute(act, in);
  if (setter == Py_None) return changeByStep(rec, f, act, in, setattrFunction());
  if (setter != nullptr) {
    PendingFrame pending = setterFrame(rec, setter, shadow, object, name, f.top(2), value);
    pending.site = rec.snapshots.callSite(in, 2, {}, ir::ReturnAction::kDiscard);
    rec.callees.expectFrame(std::move(pending));
  }
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.drop(2);
  return flow;
}

Flow deleteAttr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* name = pyapi::nameAt(f.code, in.arg);
  Shadow shadow = f.top(1);
  if (torchapi::isTensor(act.peek(1))) return changeByStep(rec, f, act, in, delattrFunction());
  PyObject* deleter = nullptr;
  if (!rec.stores.planDelete(shadow, act.peek(1), name, deleter)) return rec.execute(act, in);
  if (deleter != nullptr) {
    PendingFrame pending = setterFrame(rec, deleter, shadow, act.peek(1), name, Shadow::null(), nullptr);
    pending.site = rec.snapshots.callSite(in, 1, {}, ir::ReturnAction::kDiscard);
    rec.callees.expectFrame(std::move(pending));
  }
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.drop(1);
  return flow;
}

// `super().name` in one instruction.
Flow loadSuperAttr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* callable = act.peek(3);
  CallModel model = callable == reinterpret_cast<PyObject*>(&PySuper_Type) ? modelOf(callable) : nullptr;
  if (model == nullptr || !rec.guards.pin(f.top(3), callable)) {
    rec.abort(diag::Code::KTG0106, {opcodeName(in.op)});
    return rec.execute(act, in);
  }
  const SecondHalf half(rec, f, act);
  Instr make = in;
  make.run = handlers::makeSuper;
  PyObject* args[] = {act.peek(2), act.peek(1)};
  Shadow shadows[] = {f.top(2), f.top(1)};
  CallContext ctx(rec, f, act, make);
  ctx.of(callable, Shadow::constant(), args, shadows, superArgumentCount(in));
  ctx.popped = 3;
  Shadow result;
  const Flow flow = model(ctx, result);
  if (flow != Flow::kNext) return flow;
  if (rec.live()) {
    f.drop(3);
    f.push(result);
  }
  return half.run(attributeOfSuper(in));
}

}  // namespace

void registerAttributeRecords(RecordTable& t) {
  t[op::LOAD_ATTR] = loadAttr;
  t[op::LOAD_METHOD] = loadMethod;
  t[op::LOAD_SUPER_ATTR] = loadSuperAttr;
  t[op::STORE_ATTR] = storeAttr;
  t[op::DELETE_ATTR] = deleteAttr;
}

}  // namespace kintsugi::capture
