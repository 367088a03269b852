#include "capture/record/fallback.h"

#include <string_view>
#include <vector>

#include "capture/calls/model.h"
#include "capture/lists.h"
#include "capture/shown.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"

namespace kintsugi::capture {

Flow pinAndRun(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int popped) {
  for (int i = popped; i >= 1; --i) {
    if (!rec.guards.pin(f.top(i), act.peek(i))) return rec.execute(act, in);
  }
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(popped);
  f.push(Shadow::constant());
  return flow;
}

namespace {

PyObject* operatorFunction(const char* name) {
  static constinit pyapi::Lazy<PyObject*> moduleSlot;
  PyObject* module = moduleSlot.get([] { return pyapi::importModule("_operator"); });
  PyObject* function = PyObject_GetAttrString(module, name);
  return function;  // never freed: there are a few dozen of them
}

}  // namespace

Flow operatorStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, const char* function,
                  int popped, bool pushes, std::optional<CallKind> given) {
  std::vector<PyObject*> args;
  Shadows shadows;
  // For a subscript, only the container decides whether the operation is torch's. A list that is indexed by a
  // tensor asks the tensor for its number, and the item that it returns is no result of torch's.
  const bool subscript = std::string_view(function) == "getitem";
  bool tensors = false;
  for (int i = popped; i >= 1; --i) {
    args.push_back(act.peek(i));
    shadows.push_back(f.top(i));
    tensors = tensors || (torchapi::isTensor(act.peek(i)) && (!subscript || i == popped));
  }
  pyapi::Ref<> callable = pyapi::steal(operatorFunction(function));
  CallContext ctx(rec, f, act, in);
  ctx.of(callable.get(), Shadow::constant(), args.data(), shadows.data(), args.size());
  ctx.pushes = pushes;
  ctx.popped = static_cast<size_t>(popped);
  Shadow result;
  Flow flow;
  if (tensors) {
    flow = rec.torch.torchStep(ctx, result);
  } else {
    CallKind kind = given.value_or(CallKind::kKnown);
    for (PyObject* arg : args) {
      if (rec.steps.stepKind(arg) == CallKind::kOpaque) kind = CallKind::kOpaque;
    }
    flow = rec.steps.callStep(ctx, kind, kind == CallKind::kOpaque ? function : nullptr, result);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(popped);
  if (pushes) f.push(result);
  return flow;
}

Flow methodStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject* method,
                std::initializer_list<int> order, bool rebuildable, bool pushes) {
  PendingFrame pending;
  int popped = 0;
  for (int at : order) {
    popped = std::max(popped, at);
    if (pending.args.empty()) {
      pending = rec.callees.methodFrame(method, f.top(at), act.peek(at));
      rec.guards.guardType(f.top(at), act.peek(at));
      rec.guards.guardTypeVersion(Py_TYPE(act.peek(at)));
    } else {
      pending.args.push_back(act.peek(at));
      pending.shadows.push_back(f.top(at));
    }
  }
  if (!rec.live()) return rec.execute(act, in);
  pending.positional = pending.args.size();
  pending.rebuildable = rebuildable;
  pending.pinResult = !rebuildable && pushes;
  pending.site =
      rec.snapshots.callSite(in, popped, {}, pushes ? ir::ReturnAction::kPush : ir::ReturnAction::kDiscard);
  rec.callees.expectFrame(std::move(pending));
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(popped);
  if (!pushes) return flow;
  Shadow result = rec.callees.frameResult(act.peek(1));
  if (!rebuildable && !result.isConst()) {
    // CPython has converted the result to a bool. Its shadow is known only if the result is a constant.
    rec.abort(diag::Code::KTG0102, {"a special method whose result is converted"});
  }
  f.push(rebuildable ? result : Shadow::constant());
  return flow;
}

bool pinText(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (!shadow.isVirtual() || rec.objects.virtualOf(shadow).kind != VirtualKind::kException) return false;
  for (const char* name : {"__str__", "__repr__", "__format__"}) {
    PyObject* method = specialMethod(Py_TYPE(object), name);
    if (method == nullptr || PyFunction_Check(method)) return false;
  }
  Virtual& v = rec.objects.virtualOf(shadow);
  for (size_t i = 0; i < v.parts.size(); ++i) {
    Shadow part = v.parts[i];
    if (!isPlainDeep(v.partObjects[i].get()) || !rec.guards.tryPinDeep(part, v.partObjects[i].get())) {
      return false;
    }
  }
  rec.guards.guardTypeVersion(Py_TYPE(object));
  return guardNames(rec, reinterpret_cast<PyObject*>(Py_TYPE(object))) && rec.live();
}

Flow displayStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, const char* name,
                 int popped) {
  std::vector<PyObject*> args;
  Shadows shadows;
  CallKind kind = CallKind::kKnown;
  for (int i = popped; i >= 1; --i) {
    args.push_back(act.peek(i));
    shadows.push_back(f.top(i));
    if (rec.steps.stepKind(act.peek(i)) == CallKind::kOpaque) kind = CallKind::kOpaque;
  }
  CallContext ctx(rec, f, act, in);
  ctx.of(polyfill(name), Shadow::constant(), args.data(), shadows.data(), args.size());
  ctx.popped = static_cast<size_t>(popped);
  if (kind == CallKind::kOpaque) rec.breaks.noteBreak(diag::Code::KTG0102, {"__hash__"});
  Shadow result;
  Flow flow = rec.steps.callStep(ctx, kind, nullptr, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(static_cast<size_t>(popped));
  f.push(result);
  return flow;
}

Flow fallbackContains(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* args[] = {act.peek(1), act.peek(2)};
  Shadow shadows[] = {f.top(1), f.top(2)};
  // The step returns the instruction's own result, which for `not in` is not that of operator.contains.
  pyapi::Ref<> callable =
      in.arg == 1 ? pyapi::newRef(polyfill("lacks")) : pyapi::steal(operatorFunction("contains"));
  CallContext ctx(rec, f, act, in);
  ctx.of(callable.get(), Shadow::constant(), args, shadows, 2);
  Shadow result;
  bool tensors = torchapi::isTensor(args[0]);
  Flow flow = tensors ? rec.torch.torchStep(ctx, result)
                      : rec.steps.callStep(ctx, rec.steps.stepKind(args[0]), nullptr, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(2);
  f.push(result);
  return flow;
}

Flow tensorStore(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject** args,
                 Shadow* shadows) {
  pyapi::Ref<> callable = pyapi::steal(operatorFunction("setitem"));
  CallContext ctx(rec, f, act, in);
  ctx.of(callable.get(), Shadow::constant(), args, shadows, 3);
  ctx.pushes = false;
  ctx.popped = 3;
  Shadow ignored;
  Flow flow = rec.torch.torchStep(ctx, ignored);
  if (flow == Flow::kNext && rec.live()) f.drop(3);
  return flow;
}

Flow extendInPlace(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *list = act.peek(2), *more = act.peek(1);
  Shadow target = f.top(2), added = f.top(1);
  if (!extendList(rec, target, list, added, more)) return rec.execute(act, in);
  Py_ssize_t start = PyList_GET_SIZE(list);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(1);
  pairElements(rec, target, list, added, start);
  return flow;
}

}  // namespace kintsugi::capture
