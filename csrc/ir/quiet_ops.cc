#include "ir/quiet_ops.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace kintsugi::ir {

namespace {

struct Quiet {
  std::string_view name;
  size_t operand;  // quiet if it is zero
};
constexpr auto kQuietIfZero = std::to_array<Quiet>({
    {"aten.scaled_dot_product_attention.default", 4},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", 3},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", 6},
    {"aten.dropout.default", 2},
    {"aten.feature_dropout.default", 2},
    {"aten.batch_norm.default", 5},
});

const Quiet* find(const Trace& trace, const Instruction& ins) {
  if (ins.op != Op::kAten) {
    return nullptr;
  }
  const auto* found = std::find_if(kQuietIfZero.begin(), kQuietIfZero.end(),
                                   [&](const Quiet& q) { return q.name == trace.opNames[ins.opName]; });
  return found != kQuietIfZero.end() ? found : nullptr;
}

}  // namespace

bool mayBeQuiet(const Trace& trace, const Instruction& ins) { return find(trace, ins) != nullptr; }

bool isQuiet(const Trace& trace, const Instruction& ins) {
  const Quiet* quiet = find(trace, ins);
  const auto operands = trace.operandsOf(ins);
  if (quiet == nullptr || quiet->operand >= operands.size()) {
    return false;
  }
  const Operand& o = operands[quiet->operand];
  return (o.kind == OperandKind::kFloat && o.f == 0) || (o.kind == OperandKind::kInt && o.i == 0) ||
         (o.kind == OperandKind::kBool && o.i == 0);
}

}  // namespace kintsugi::ir
