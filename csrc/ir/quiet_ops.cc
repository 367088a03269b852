#include "ir/quiet_ops.h"

#include "ops/operator.h"

namespace kintsugi::ir {

namespace {

bool isZero(const Operand& o) {
  return (o.kind == OperandKind::kFloat && o.f == 0) || (o.kind == OperandKind::kInt && o.i == 0) ||
         (o.kind == OperandKind::kBool && o.i == 0);
}

}  // namespace

bool isQuiet(const Trace& trace, const Instruction& ins) {
  const auto operands = trace.operandsOf(ins);
  for (const int8_t at : ops::infoOf(trace.operatorOf(ins)).quietIfZero) {
    if (at >= 0 && static_cast<size_t>(at) < operands.size() && isZero(operands[static_cast<size_t>(at)])) {
      return true;
    }
  }
  return false;
}

bool isImpure(const Trace& trace, const Instruction& ins, bool impure) {
  const bool mayBeQuiet = ops::infoOf(trace.operatorOf(ins)).quietIfZero[0] >= 0;
  return mayBeQuiet ? !isQuiet(trace, ins) : impure;
}

}  // namespace kintsugi::ir
