#include "ir/quiet_ops.h"

#include "ops/operator.h"

namespace kintsugi::ir {

namespace {

int quietOperand(const Trace& trace, const Instruction& ins) {
  return ops::infoOf(trace.operatorOf(ins)).quietIfZero;
}

}  // namespace

bool mayBeQuiet(const Trace& trace, const Instruction& ins) { return quietOperand(trace, ins) >= 0; }

bool isQuiet(const Trace& trace, const Instruction& ins) {
  const int at = quietOperand(trace, ins);
  const auto operands = trace.operandsOf(ins);
  if (at < 0 || static_cast<size_t>(at) >= operands.size()) {
    return false;
  }
  const Operand& o = operands[static_cast<size_t>(at)];
  return (o.kind == OperandKind::kFloat && o.f == 0) || (o.kind == OperandKind::kInt && o.i == 0) ||
         (o.kind == OperandKind::kBool && o.i == 0);
}

}  // namespace kintsugi::ir
