// TorchSteps: calls of torch that are recorded by the log of their dispatcher calls.
#include "capture/torch_steps.h"

#include <algorithm>

#include "capture/calls/function_modes.h"
#include "capture/calls/model.h"
#include "capture/calls/numpy.h"
#include "capture/calls/open_lists.h"
#include "capture/foreign.h"
#include "capture/numbers.h"
#include "capture/record_context.h"
#include "capture/recorder_tables.h"
#include "capture/sizes.h"
#include "pyapi/callable_name.h"
#include "pyapi/known_objects.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/op_effects.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

using ir::Op;
using ir::Operand;
using ir::Type;
using ir::TypeKind;

namespace {

// If a replay gets another number of results, it has to leave the trace, so the frames must be rebuildable.
// Operators that write to tensors may resize them.
void checkDrained(RecordContext& rec, const torchapi::DrainResult& drained, ir::StateId snap) {
  if (drained.mutated) rec.tables.sizeReads.forgetAll();
  if (drained.exits && !rec.trace().states[snap].rebuildable) {
    rec.abort(diag::Code::KTG0103, {"as many tensors as a size says"});
  }
}

// True if the object is an array or holds one (`x[rows, 0]`). Only its type is guarded: the step reads the
// rest.
bool takesArray(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (shadow.isSource() && isArray(object)) {
    rec.guards.guardType(shadow, object);
    return true;
  }
  if (!shadow.isVirtual() || !PyTuple_CheckExact(object)) return false;
  const std::vector<Shadow> parts = rec.objects.virtualOf(shadow).parts;
  bool any = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    any = takesArray(rec, parts[i], PyTuple_GET_ITEM(object, static_cast<Py_ssize_t>(i))) || any;
  }
  return any;
}

// True if the only tensors that the trace can't describe are results of functional collectives. torch's own
// code waits for them and computes on the tensors inside.
bool takesCollectives(const CallContext& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    const bool foreign = isForeign(ctx.shadows.any(i), ctx.args.any(i));
    if (foreign && !pyapi::isA(ctx.args.any(i), pyapi::Known::kAsyncCollective)) return false;
  }
  return true;
}

Flow collectiveStep(CallContext& ctx, Shadow& result) {
  std::vector<ir::ValueId> described;
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (isForeign(ctx.shadows.any(i), ctx.args.any(i)))
      ctx.rec.guards.guardType(ctx.shadows.any(i), ctx.args.any(i));
    else if (auto value =
                 torchapi::isTensor(ctx.args.any(i)) ? ctx.rec.ops().valueOf(ctx.args.any(i)) : std::nullopt)
      described.push_back(*value);
  }
  const Flow flow = ctx.rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
  // The step may have written to the tensor.
  for (const ir::ValueId value : described) forgetMeta(ctx.rec, value);
  return flow;
}

// A call becomes a step if an argument is an object that the trace can't look into.
std::optional<Flow> objectStep(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (takesArray(ctx.rec, ctx.shadows.any(i), ctx.args.any(i)))
      return ctx.rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
    if (isForeign(ctx.shadows.any(i), ctx.args.any(i)))
      return takesCollectives(ctx) ? collectiveStep(ctx, result)
                                   : ctx.rec.steps.callStep(ctx, CallKind::kOpaque, "", result);
    // The step is given the generator of random numbers, and nothing else depends on which one it is.
    if (torchapi::isRandomGenerator(ctx.args.any(i)) && ctx.shadows.any(i).isSource()) {
      ctx.rec.guards.guardType(ctx.shadows.any(i), ctx.args.any(i));
      return ctx.rec.steps.callStep(ctx, CallKind::kKnown, "", result);
    }
  }
  return std::nullopt;
}

}  // namespace

namespace {

// True if the result depends on more than the logged operators and the arguments.
bool hasHiddenInputs(const CallContext& ctx, const torchapi::DrainResult& drained) {
  const bool python = PyFunction_Check(ctx.callable);
  // Python code may have decided on sizes that no guard covers, before it called the second operator.
  if (python && drained.dynamic && drained.count > 1) return true;
  // Python code, or C code that is not torch's, may have computed the number in the result from a tensor's
  // number.
  return (python || ctx.pinNumbers) && !drained.scalars.empty();
}

// True for wrappers of a transform, which it hands out without an operator. They are known by the tensors
// inside.
bool isTransformWrapper(PyObject* object) {
  if (!PyTuple_Check(object)) return torchapi::isWrapper(object);
  bool wrappers = torchapi::transformsActive();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
    PyObject* item = PyTuple_GET_ITEM(object, i);
    wrappers = wrappers && (item == Py_None || torchapi::isTensor(item));
  }
  return wrappers;
}

// True if the call has to get real numbers. With symbolic ones a mode would see the operators that make
// tensors of numbers.
bool takesNumbers(const CallContext& ctx) {
  return ctx.onlyReadsMetadata || ctx.pinNumbers || PyFunction_Check(ctx.callable) ||
         torchapi::transformsActive() || torchapi::hasModes();
}

}  // namespace

Flow TorchSteps::executeLogged(CallContext& ctx) {
  torchCalls_.setTainted(false);
  torchCalls_.begin();
  ops_.resume();
  const bool asItIs = torchapi::hasModes();
  const bool other = ctx.dispatchedCall != nullptr && !asItIs && !torchapi::transformsActive();
  Flow flow = asItIs  ? rec_.execute(ctx.act, ctx.instr)
              : other ? rec_.steps.replaceCall(ctx, pyapi::steal(ctx.dispatchedCall(ctx.args[0])))
                      : executeSymbolic(ctx);
  ops_.pause();
  torchCalls_.end();
  return flow;
}

namespace {

Flow modesStep(CallContext& ctx, Shadow& result) {
  if (auto flow = underFunctionModes(ctx, result)) return *flow;
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, "", result);
}

}  // namespace

Flow TorchSteps::torchStep(CallContext& ctx, Shadow& result) {
  if (torchapi::hasFunctionModes()) [[unlikely]]
    return modesStep(ctx, result);
  if (auto flow = objectStep(ctx, result)) return *flow;
  if (auto flow = joinOpenList(ctx, result)) return *flow;
  std::vector<Shadow> pinned(ctx.shadows.begin(), ctx.shadows.end());
  const bool concrete = takesNumbers(ctx);
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!(concrete ? rec_.guards.pinDeep(pinned[i], ctx.args.any(i))
                   : pinForTorch(pinned[i], ctx.args.any(i))))
      return rec_.execute(ctx.act, ctx.instr);
  }
  if (!pinHiddenNumbers(ctx, pinned)) return rec_.execute(ctx.act, ctx.instr);
  ctx.shadows.replace(pinned.data());
  Shadow callable = ctx.callableShadow;
  if (callable.isSource() && !rec_.guards.pin(callable, ctx.callable))
    return rec_.execute(ctx.act, ctx.instr);
  torchCalls_.setConstantNumbers(ctx.onlyReadsMetadata);
  bool dynamic = false;
  for (size_t i = 0; i < ctx.total(); ++i) {
    const bool isWrapper = torchapi::isTensor(ctx.args.any(i)) && pinned[i].isVirtual();
    if (isWrapper && !values_.hasStaticMeta(pinned[i], ctx.args.any(i))) {
      rec_.abort(diag::Code::KTG0109, {"sizes under a transform that are known only at run time"});
      return rec_.execute(ctx.act, ctx.instr);
    }
    const bool isValue = torchapi::isTensor(ctx.args.any(i)) && pinned[i].isValue();
    if (isValue && !pinLikely(rec_, pinned[i], ctx.args.any(i))) return rec_.execute(ctx.act, ctx.instr);
    dynamic = dynamic || (isValue && ops_.level(pinned[i].valueId()) != torchapi::MetaLevel::kFull);
  }
  if (dynamic && ctx.onlyReadsMetadata) {
    if (auto flow = readSizes(ctx, result)) return *flow;
  }
  for (size_t i = 0; dynamic && i < ctx.total(); ++i) {
    if (torchapi::isTensor(ctx.args.any(i)) && pinned[i].isValue() &&
        !pinForBinding(ctx, pinned[i], ctx.args.any(i)))
      return rec_.execute(ctx.act, ctx.instr);
  }
  ctx.hideSliceBounds = dynamic && decidesOnSlices(ctx);
  ir::StateId snap = rec_.snapshots.stateBefore();
  // Takes the operands for the case that the call becomes a step, before the call may consume the arguments.
  CallContext fallback = ctx;
  fallback.callableShadow = callable;
  std::vector<Operand> operands;
  const bool haveOperands = rec_.steps.quietOperands(fallback, operands);
  Flow flow = executeLogged(ctx);
  const CallKind kind =
      torchCalls_.isTainted() ? CallKind::kOpaque : CallKind::kKnown;  // used if the call becomes a step
  if (flow == Flow::kRaise) {
    ops_.discard();
    exceptions_.setUnsafe(!haveOperands || !rec_.steps.recordRaised(fallback, kind, operands, snap));
    return flow;
  }
  PyObject* object = ctx.pushes ? ctx.act.peek(ctx.resultDepth) : Py_None;
  std::string detail;
  if (!torchCalls_.isTainted() && pinGivenBack(rec_, snap)) {
    const torchapi::DrainResult drained = ops_.drain(document_.trace, snap);
    if (drained.detail != nullptr) detail = std::string(" by ") + drained.detail;
    checkDrained(rec_, drained, snap);
    if (drained.status == torchapi::DrainResult::kOk) {
      std::optional<Shadow> shadow;
      if (!hasHiddenInputs(ctx, drained))
        shadow = ctx.pushes ? values_.shadowOf(object, drained) : Shadow::constant();
      if (shadow && drained.count == 0 && !ctx.onlyReadsMetadata && !shadow->isValue() &&
          !isTransformWrapper(object))
        shadow = std::nullopt;
      if (shadow && TorchValues::explainsNumbers(object, drained)) {
        result = *shadow;
        return flow;
      }
      undo(drained);
    }
  }
  ops_.discard();
  if (!haveOperands) {
    rec_.abort(diag::Code::KTG0301, {pyapi::callableName(ctx.callable) + detail});
    return flow;
  }
  result = rec_.steps.appendCall(fallback, kind, operands, snap, object);
  return flow;
}

std::optional<Shadow> TorchSteps::torchOperation(ir::StateId snap, pyapi::Ref<>& result,
                                                 const std::function<PyObject*()>& operation) {
  torchCalls_.setTainted(false);
  torchCalls_.setConstantNumbers(false);
  torchCalls_.begin();
  ops_.resume();
  result = pyapi::steal(operation());
  ops_.pause();
  torchCalls_.end();
  if (!result) {
    ops_.discard();
    exceptions_.setUnsafe(true);
    return std::nullopt;
  }
  torchapi::DrainResult drained;
  const bool logged = !torchCalls_.isTainted() && pinGivenBack(rec_, snap);
  if (logged) drained = ops_.drain(document_.trace, snap);
  checkDrained(rec_, drained, snap);
  bool recorded = logged && drained.status == torchapi::DrainResult::kOk && drained.count > 0;
  auto shadow = recorded ? values_.shadowOf(result.get(), drained) : std::nullopt;
  if (shadow && TorchValues::explainsNumbers(result.get(), drained)) return shadow;
  rec_.abort(diag::Code::KTG0301, {"an operation of C code"});
  return Shadow::constant();
}

// For `a, b = tensor`: the instruction pushes `pushed` tensors. With a starred target (`a, *rest, b =
// tensor`) it also pushes a list, below which are the `behind` last tensors.
Flow TorchSteps::torchSequence(Activation& act, const Instr& instr, int pushed, int behind) {
  ShadowFrame& frame = *frames_.current();
  PyObject* object = act.peek(1);
  frame.top() = rec_.guards.tensorShadow(object, frame.top());
  if (!rec_.live() || !pinMeta(rec_, frame.top(), object)) return rec_.execute(act, instr);
  ir::StateId snap = rec_.snapshots.stateBefore();
  torchCalls_.setTainted(false);
  torchCalls_.begin();
  ops_.resume();
  Flow flow = rec_.execute(act, instr);
  ops_.pause();
  torchCalls_.end();
  if (flow != Flow::kNext || torchCalls_.isTainted()) {
    ops_.discard();
    exceptions_.setUnsafe(true);
    if (flow == Flow::kNext) rec_.abort(diag::Code::KTG0301, {"unpacking under a mode"});
    return flow;
  }
  torchapi::DrainResult drained = ops_.drain(document_.trace, snap);
  checkDrained(rec_, drained, snap);
  frame.drop(1);
  auto shadowOf = [&](PyObject* tensor) {
    auto value = drained.status == torchapi::DrainResult::kOk ? ops_.valueOf(tensor) : std::nullopt;
    if (!value) rec_.abort(diag::Code::KTG0301, {"unpacking"});
    return value ? Shadow::value(*value) : Shadow::constant();
  };
  int depth = behind < 0 ? pushed : pushed + 1 + behind;
  for (int i = depth; i >= 1; --i) {
    PyObject* item = act.peek(i);
    if (behind < 0 || i != pushed + 1) {
      frame.push(shadowOf(item));
      continue;
    }
    Shadow list = rec_.objects.newVirtual(VirtualKind::kList, item);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(item); ++k) {
      rec_.objects.virtualOf(list).parts.push_back(shadowOf(PyList_GET_ITEM(item, k)));
    }
    frame.push(list);
  }
  return flow;
}

// Removes the instructions of the last drain from the trace.
void TorchSteps::undo(const torchapi::DrainResult& drained) {
  auto& code = document_.trace.code;
  for (size_t i = 0; i < drained.count; ++i) {
    ir::Instruction& ins = code[code.size() - 1 - i];
    for (uint32_t r = 0; r < ins.resultCount; ++r) ops_.forget(ins.firstResult + r);
  }
  code.resize(code.size() - drained.count);
}

// Reads the only element of a tensor and guards its truth. Replaces the tensor on the stack by the bool,
// unless the instruction has to find the tensor there.
std::optional<bool> TorchSteps::tensorTruth(Shadow shadow, PyObject* tensor, bool replace) {
  shadow = rec_.guards.tensorShadow(tensor, shadow);
  if (!rec_.live()) return std::nullopt;
  if (torchapi::hasModes()) {  // a mode must see the question only once
    rec_.abort(diag::Code::KTG0301, {"the truth of a tensor under a mode"});
    return std::nullopt;
  }
  ir::StateId snap = rec_.snapshots.stateBefore();
  ops_.resume();
  int truth = PyObject_IsTrue(tensor);
  ops_.pause();
  if (truth < 0) {  // "ambiguous": the instruction raises the same error itself
    PyErr_Clear();
    ops_.discard();
    exceptions_.setUnsafe(true);
    return std::nullopt;
  }
  torchapi::DrainResult drained = ops_.drain(document_.trace, snap);
  if (drained.status != torchapi::DrainResult::kOk || drained.scalars.size() != 1) {
    rec_.abort(diag::Code::KTG0301, {"the truth of a tensor"});
    return std::nullopt;
  }
  ir::ValueId value = drained.scalars[0].value;
  if (document_.trace.values[value].kind != ir::TypeKind::kBool) {
    size_t at =
        rec_.steps.emit(Op::kToBool, {Operand::value(value)}, {{ir::TypeKind::kBool, ir::kNone}}, ir::kNone);
    value = document_.trace.code[at].firstResult;
  }
  if (!rec_.guards.guardTruth(value, truth == 1)) return std::nullopt;
  if (replace) {
    PyObject*& slot = frames_.current()->act->peek(1);
    PyObject* old = slot;
    slot = Py_NewRef(truth ? Py_True : Py_False);
    Py_DECREF(old);
  }
  return truth == 1;
}

}  // namespace kintsugi::capture
