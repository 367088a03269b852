// TorchSteps: calls of torch that are recorded by the log of their dispatcher calls.
#include "capture/torch_steps.h"

#include <algorithm>

#include "capture/calls/numpy.h"
#include "capture/foreign.h"
#include "pyapi/callable_name.h"
#include "pyapi/known_objects.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/function_modes.h"
#include "torchapi/global_state.h"
#include "torchapi/known_torch.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

using ir::Op;
using ir::Operand;
using ir::Type;
using ir::TypeKind;

// If a replay gets another number of results, it has to leave the trace, so the frames must be rebuildable.
// Operators that write to tensors may resize them.
void TorchSteps::checkDrained(const torchapi::DrainResult& drained, ir::StateId snap) {
  if (drained.mutated) sizeReads_.forgetAll();
  if (drained.exits && !document_.trace.states[snap].rebuildable) {
    roles_.breaks.abort(diag::Code::KTG0103, {"as many tensors as a size says"});
  }
}

// True if the object is an array or holds one (`x[rows, 0]`). Only its type is guarded: the step reads the
// rest.
bool TorchSteps::takesArray(Shadow shadow, PyObject* object) {
  if (shadow.isSource() && isArray(object)) {
    roles_.guards.guardType(shadow, object);
    return true;
  }
  if (!shadow.isVirtual() || !PyTuple_CheckExact(object)) return false;
  const Shadows parts = virtuals_[shadow].parts;
  bool any = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    any = takesArray(parts[i], PyTuple_GET_ITEM(object, static_cast<Py_ssize_t>(i))) || any;
  }
  return any;
}

namespace {

// True if the only tensors that the trace can't describe are results of functional collectives. torch's own
// code waits for them and computes on the tensors inside.
bool takesCollectives(const TorchCall& call) {
  for (size_t i = 0; i < call.total(); ++i) {
    const bool foreign = isForeign(call.shadows.any(i), call.args.any(i));
    if (foreign && !pyapi::isA(call.args.any(i), torchapi::Known::kAsyncCollective)) return false;
  }
  return true;
}

}  // namespace

Flow TorchSteps::collectiveStep(TorchCall& call, Shadow& result) {
  std::vector<ir::ValueId> described;
  for (size_t i = 0; i < call.total(); ++i) {
    if (isForeign(call.shadows.any(i), call.args.any(i)))
      roles_.guards.guardType(call.shadows.any(i), call.args.any(i));
    else if (auto value =
                 torchapi::isTensor(call.args.any(i)) ? tensors_.valueOf(call.args.any(i)) : std::nullopt)
      described.push_back(*value);
  }
  const Flow flow = roles_.steps.callStep(call, CallKind::kKnown, nullptr, result);
  // The step may have written to the tensor.
  for (const ir::ValueId value : described) roles_.sizes.forgetMeta(value);
  return flow;
}

// A call becomes a step if an argument is an object that the trace can't look into.
std::optional<Flow> TorchSteps::objectStep(TorchCall& call, Shadow& result) {
  for (size_t i = 0; i < call.total(); ++i) {
    if (takesArray(call.shadows.any(i), call.args.any(i)))
      return roles_.steps.callStep(call, CallKind::kKnown, nullptr, result);
    if (isForeign(call.shadows.any(i), call.args.any(i)))
      return takesCollectives(call) ? collectiveStep(call, result)
                                    : roles_.steps.callStep(call, CallKind::kOpaque, "", result);
    // The step is given the generator of random numbers, and nothing else depends on which one it is.
    if (torchapi::isRandomGenerator(call.args.any(i)) && call.shadows.any(i).isSource()) {
      roles_.guards.guardType(call.shadows.any(i), call.args.any(i));
      return roles_.steps.callStep(call, CallKind::kKnown, "", result);
    }
  }
  return std::nullopt;
}

namespace {

// True if the result depends on more than the logged operators and the arguments.
bool hasHiddenInputs(const TorchCall& call, const torchapi::DrainResult& drained) {
  const bool python = PyFunction_Check(call.callable);
  // Python code may have decided on sizes that no guard covers, before it called the second operator.
  if (python && drained.dynamic && drained.count > 1) return true;
  // Python code, or C code that is not torch's, may have computed the number in the result from a tensor's
  // number.
  return (python || call.pinNumbers) && !drained.scalars.empty();
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
bool takesNumbers(const TorchCall& call) {
  return call.onlyReadsMetadata || call.pinNumbers || PyFunction_Check(call.callable) ||
         torchapi::transformsActive() || torchapi::hasModes();
}

}  // namespace

Flow TorchSteps::executeLogged(TorchCall& call) {
  torchCalls_.setTainted(false);
  torchCalls_.begin();
  log_.resume();
  const bool asItIs = torchapi::hasModes();
  const bool other = call.dispatchedCall != nullptr && !asItIs && !torchapi::transformsActive();
  Flow flow = asItIs  ? execute(call)
              : other ? roles_.steps.replaceCall(call, pyapi::steal(call.dispatchedCall(call.args[0])))
                      : executeSymbolic(call);
  log_.pause();
  torchCalls_.end();
  return flow;
}

// True if an operator of the call has run Python code that may change anything in another run, whatever it
// has done in this one.
bool TorchSteps::mayChangeAnything() const {
  return torchCalls_.hasProgramRun() || torchapi::operatorsCallUnseen();
}

// The shadow of the call's result, if the operators that were logged explain it.
std::optional<Shadow> TorchSteps::explainedResult(TorchCall& call, PyObject* object,
                                                  const torchapi::DrainResult& drained) {
  if (hasHiddenInputs(call, drained) || !TorchValues::explainsNumbers(object, drained)) return std::nullopt;
  std::optional<Shadow> shadow = call.pushes ? values_.shadowOf(object, drained) : Shadow::constant();
  if (shadow && drained.count == 0 && !call.onlyReadsMetadata && !shadow->isValue() &&
      !isTransformWrapper(object))
    return std::nullopt;
  return shadow;
}

Flow TorchSteps::torchStep(TorchCall& call, Shadow& result) {
  if (torchapi::hasFunctionModes()) [[unlikely]] {
    if (auto flow = roles_.detours.underFunctionModes(call, result)) return *flow;
    return roles_.steps.callStep(call, CallKind::kOpaque, "", result);
  }
  if (auto flow = objectStep(call, result)) return *flow;
  if (auto flow = roles_.detours.joinOpenList(call, result)) return *flow;
  Shadows pinned(call.shadows.begin(), call.shadows.end());
  const bool concrete = takesNumbers(call);
  for (size_t i = 0; i < call.total(); ++i) {
    PyObject* arg = call.args.any(i);
    if (!(concrete ? roles_.pins.pinDeep(pinned[i], arg) : pinForTorch(pinned[i], arg))) return execute(call);
  }
  if (!pinHiddenNumbers(call, pinned)) return execute(call);
  call.shadows.replace(pinned.data());
  Shadow callable = call.callableShadow;
  if (callable.isSource() && !roles_.guards.pin(callable, call.callable)) return execute(call);
  torchCalls_.setConstantNumbers(call.onlyReadsMetadata);
  bool dynamic = false;
  for (size_t i = 0; i < call.total(); ++i) {
    const bool isWrapper = torchapi::isTensor(call.args.any(i)) && pinned[i].isVirtual();
    if (isWrapper && !values_.hasStaticMeta(pinned[i], call.args.any(i))) {
      roles_.breaks.abort(diag::Code::KTG0109, {"sizes under a transform that are known only at run time"});
      return execute(call);
    }
    const bool isValue = torchapi::isTensor(call.args.any(i)) && pinned[i].isValue();
    if (isValue && !roles_.bindings.pinLikely(pinned[i], call.args.any(i))) return execute(call);
    dynamic = dynamic || (isValue && tensors_.level(pinned[i].valueId()) != torchapi::MetaLevel::kFull);
  }
  if (dynamic && call.onlyReadsMetadata) {
    if (auto flow = roles_.detours.readSizes(call, result)) return *flow;
  }
  for (size_t i = 0; dynamic && i < call.total(); ++i) {
    if (torchapi::isTensor(call.args.any(i)) && pinned[i].isValue() &&
        !roles_.bindings.pinForBinding(call, pinned[i], call.args.any(i)))
      return execute(call);
  }
  call.hideSliceBounds = dynamic && roles_.bindings.decidesOnSlices(call);
  ir::StateId snap = roles_.snapshots.stateBefore();
  // Takes the operands for the case that the call becomes a step, before the call may consume the arguments.
  TorchCall fallback = call;
  fallback.callableShadow = callable;
  std::vector<Operand> operands;
  const bool haveOperands = roles_.steps.quietOperands(fallback, operands);
  Flow flow = executeLogged(call);
  const bool readAgain = mayChangeAnything();
  // Used if the call becomes a step.
  const CallKind kind = torchCalls_.isTainted() || readAgain ? CallKind::kOpaque : CallKind::kKnown;
  if (flow == Flow::kRaise) {
    log_.discard();
    exceptions_.setUnsafe(!haveOperands || !roles_.steps.recordRaised(fallback, kind, operands, snap));
    if (kind == CallKind::kOpaque && roles_.breaks.isLive()) roles_.stale.forgetEscapedObjects();
    return flow;
  }
  PyObject* object = call.pushes ? call.act.peek(call.resultDepth) : Py_None;
  std::string detail;
  if (!torchCalls_.isTainted() && roles_.bindings.pinGivenBack(snap)) {
    const torchapi::DrainResult drained = log_.drain(document_.trace, snap);
    if (drained.detail != nullptr) detail = std::string(" by ") + drained.detail;
    checkDrained(drained, snap);
    if (drained.status == torchapi::DrainResult::kOk) {
      if (const std::optional<Shadow> shadow = explainedResult(call, object, drained)) {
        result = *shadow;
        if (readAgain && drained.count > 0) roles_.stale.readAgain();
        return flow;
      }
      undo(drained);
    }
  }
  log_.discard();
  if (!haveOperands) {
    roles_.breaks.abort(diag::Code::KTG0301, {pyapi::callableName(call.callable) + detail});
    return flow;
  }
  result = roles_.steps.appendCall(fallback, kind, operands, snap, object);
  if (kind == CallKind::kOpaque) roles_.stale.forgetEscapedObjects();
  return flow;
}

std::optional<Shadow> TorchSteps::torchOperation(ir::StateId snap, pyapi::Ref<>& result,
                                                 const std::function<PyObject*()>& operation) {
  torchCalls_.setTainted(false);
  torchCalls_.setConstantNumbers(false);
  torchCalls_.begin();
  log_.resume();
  result = pyapi::steal(operation());
  log_.pause();
  torchCalls_.end();
  if (!result) {
    log_.discard();
    exceptions_.setUnsafe(true);
    return std::nullopt;
  }
  torchapi::DrainResult drained;
  const bool logged = !torchCalls_.isTainted() && roles_.bindings.pinGivenBack(snap);
  if (logged) drained = log_.drain(document_.trace, snap);
  checkDrained(drained, snap);
  bool recorded = logged && drained.status == torchapi::DrainResult::kOk && drained.count > 0;
  auto shadow = recorded ? values_.shadowOf(result.get(), drained) : std::nullopt;
  if (shadow && TorchValues::explainsNumbers(result.get(), drained)) {
    if (mayChangeAnything()) roles_.stale.readAgain();
    return shadow;
  }
  roles_.breaks.abort(diag::Code::KTG0301, {"an operation of C code"});
  return Shadow::constant();
}

// For `a, b = tensor`: the instruction pushes `pushed` tensors. With a starred target (`a, *rest, b =
// tensor`) it also pushes a list, below which are the `behind` last tensors.
Flow TorchSteps::torchSequence(Activation& act, const Instr& instr, int pushed, int behind) {
  ShadowFrame& frame = *frames_.current();
  PyObject* object = act.peek(1);
  frame.top() = roles_.arguments.tensorShadow(object, frame.top());
  if (!roles_.breaks.isLive() || !roles_.sizes.pinMeta(frame.top(), object))
    return roles_.runner.execute(act, instr);
  ir::StateId snap = roles_.snapshots.stateBefore();
  torchCalls_.setTainted(false);
  torchCalls_.begin();
  log_.resume();
  Flow flow = roles_.runner.execute(act, instr);
  log_.pause();
  torchCalls_.end();
  if (flow != Flow::kNext || torchCalls_.isTainted()) {
    log_.discard();
    exceptions_.setUnsafe(true);
    if (flow == Flow::kNext) roles_.breaks.abort(diag::Code::KTG0301, {"unpacking under a mode"});
    return flow;
  }
  torchapi::DrainResult drained = log_.drain(document_.trace, snap);
  checkDrained(drained, snap);
  frame.drop(1);
  auto shadowOf = [&](PyObject* tensor) {
    auto value = drained.status == torchapi::DrainResult::kOk ? tensors_.valueOf(tensor) : std::nullopt;
    if (!value) roles_.breaks.abort(diag::Code::KTG0301, {"unpacking"});
    return value ? Shadow::value(*value) : Shadow::constant();
  };
  int depth = behind < 0 ? pushed : pushed + 1 + behind;
  for (int i = depth; i >= 1; --i) {
    PyObject* item = act.peek(i);
    if (behind < 0 || i != pushed + 1) {
      frame.push(shadowOf(item));
      continue;
    }
    Shadow list = roles_.objects.newVirtual(VirtualKind::kList, item);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(item); ++k) {
      virtuals_[list].parts.push_back(shadowOf(PyList_GET_ITEM(item, k)));
    }
    frame.push(list);
  }
  if (mayChangeAnything()) roles_.stale.readAgain();
  return flow;
}

// Removes the instructions of the last drain from the trace.
void TorchSteps::undo(const torchapi::DrainResult& drained) {
  auto& code = document_.trace.code;
  for (size_t i = 0; i < drained.count; ++i) {
    ir::Instruction& ins = code[code.size() - 1 - i];
    for (uint32_t r = 0; r < ins.resultCount; ++r) log_.forget(ins.firstResult + r);
  }
  code.resize(code.size() - drained.count);
}

// Reads the only element of a tensor and guards its truth. Replaces the tensor on the stack by the bool,
// unless the instruction has to find the tensor there.
std::optional<bool> TorchSteps::tensorTruth(Shadow shadow, PyObject* tensor, bool replace) {
  shadow = roles_.arguments.tensorShadow(tensor, shadow);
  if (!roles_.breaks.isLive()) return std::nullopt;
  if (torchapi::hasModes()) {  // a mode must see the question only once
    roles_.breaks.abort(diag::Code::KTG0301, {"the truth of a tensor under a mode"});
    return std::nullopt;
  }
  ir::StateId snap = roles_.snapshots.stateBefore();
  log_.resume();
  int truth = PyObject_IsTrue(tensor);
  log_.pause();
  if (truth < 0) {  // "ambiguous": the instruction raises the same error itself
    PyErr_Clear();
    log_.discard();
    exceptions_.setUnsafe(true);
    return std::nullopt;
  }
  torchapi::DrainResult drained = log_.drain(document_.trace, snap);
  if (drained.status != torchapi::DrainResult::kOk || drained.scalars.size() != 1) {
    roles_.breaks.abort(diag::Code::KTG0301, {"the truth of a tensor"});
    return std::nullopt;
  }
  ir::ValueId value = drained.scalars[0].value;
  if (document_.trace.values[value].kind != ir::TypeKind::kBool) {
    size_t at = roles_.writer.emit(Op::kToBool, {Operand::value(value)}, {{ir::TypeKind::kBool, ir::kNone}},
                                   ir::kNone);
    value = document_.trace.code[at].firstResult;
  }
  if (!roles_.pins.guardTruth(value, truth == 1)) return std::nullopt;
  if (replace) {
    PyObject*& slot = frames_.current()->act->peek(1);
    PyObject* old = slot;
    slot = Py_NewRef(truth ? Py_True : Py_False);
    Py_DECREF(old);
  }
  return truth == 1;
}

}  // namespace kintsugi::capture
