// Record handlers: jumps and truth.
#include "capture/calls/model.h"
#include "capture/record/table.h"
#include "pyapi/code.h"
#include "pyapi/opcodes.h"

namespace kintsugi::capture {

namespace {

Flow jump(RecordContext& rec, ShadowFrame&, Activation& act, const Instr& in) { return rec.execute(act, in); }

// Guards the truth of the top of the stack. False: the recording has ended.
bool decideTruth(RecordContext& rec, ShadowFrame& f, Activation& act) {
  Shadow shadow = f.top();
  PyObject* object = act.peek(1);
  return rec.guards.pinTruth(shadow, object);
}

// The truth of a tensor is that of its only element. Reading it is an operation with a number as its result,
// on which there is a guard. The instruction then runs on that number, so that the tensor is read once.
bool readTensorTruth(RecordContext& rec, ShadowFrame& f, Activation& act, bool replace) {
  if (!torchapi::isTensor(act.peek(1))) return true;
  auto truth = rec.torch.tensorTruth(f.top(), act.peek(1), replace);
  if (!truth) return rec.live();
  return true;
}

// If Python code decides the truth of the object, records that code first. The instruction then runs on its
// answer. An exit from that code comes back to the instruction.
std::optional<Flow> askTruth(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const char* name = f.top().isValue() ? nullptr : truthFunction(act.peek(1));
  if (name == nullptr) return std::nullopt;
  Flow flow = rec.callees.callInPlace(f, act, in, polyfill(name), 1, {}, ir::ReturnAction::kOperand);
  return flow == Flow::kNext ? rec.execute(act, in) : flow;
}

Flow popJumpIf(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (auto flow = askTruth(rec, f, act, in)) {
    if (*flow != Flow::kRaise) f.drop(1);
    return *flow;
  }
  if (torchapi::isTensor(act.peek(1))) {
    if (!readTensorTruth(rec, f, act, true)) return rec.execute(act, in);
  } else if (!decideTruth(rec, f, act)) {
    return rec.execute(act, in);
  }
  Flow flow = rec.execute(act, in);
  f.drop(1);
  return flow;
}

Flow jumpIfOrPop(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (torchapi::isTensor(act.peek(1))) {
    if (!readTensorTruth(rec, f, act, false)) return rec.execute(act, in);
  } else if (!decideTruth(rec, f, act)) {
    return rec.execute(act, in);
  }
  Flow flow = rec.execute(act, in);
  if (act.stackDepth() < static_cast<int32_t>(f.stack.size())) f.drop(1);
  return flow;
}

Flow popJumpIfNone(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (!rec.guards.pinIsNone(f.top(), act.peek(1))) return rec.execute(act, in);
  Flow flow = rec.execute(act, in);
  f.drop(1);
  return flow;
}

// UNARY_NOT and TO_BOOL.
Flow truthOfTop(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (auto flow = askTruth(rec, f, act, in)) {
    if (*flow == Flow::kNext) f.top() = Shadow::constant();
    return *flow;
  }
  if (torchapi::isTensor(act.peek(1))) {
    if (!readTensorTruth(rec, f, act, true)) return rec.execute(act, in);
  } else if (!decideTruth(rec, f, act)) {
    return rec.execute(act, in);
  }
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.top() = Shadow::constant();
  return flow;
}

}  // namespace

void registerBranchRecords(RecordTable& t) {
  t[op::JUMP_FORWARD] = t[op::JUMP_BACKWARD] = t[op::JUMP_NO_INTERRUPT] = jump;
  t[op::POP_JUMP_IF_FALSE] = t[op::POP_JUMP_IF_TRUE] = popJumpIf;
  t[op::POP_JUMP_IF_NONE] = t[op::POP_JUMP_IF_NOT_NONE] = popJumpIfNone;
  t[op::JUMP_IF_FALSE_OR_POP] = t[op::JUMP_IF_TRUE_OR_POP] = jumpIfOrPop;
  t[op::UNARY_NOT] = t[op::TO_BOOL] = truthOfTop;
}

}  // namespace kintsugi::capture
