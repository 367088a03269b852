#include "driver/native_row_updates.h"

#include <algorithm>

#include "ops/operator.h"

namespace kintsugi::driver {

using ir::Operand;
using ir::OperandKind;

bool writesToCopy(std::string_view name) { return ops::infoOf(name).rowUpdate != ops::RowUpdateKind::kNone; }

// (self, dim, index, source or number, alpha)
std::optional<runtime::NativeCall::Rows> rowUpdateOf(std::string_view name, std::span<const Operand> operands,
                                                     std::span<const uint32_t> slots) {
  constexpr size_t kKnown = 4;
  using Kind = ops::RowUpdateKind;
  const Kind kind = ops::infoOf(name).rowUpdate;
  const bool fits = kind != Kind::kNone && kind != Kind::kOther && operands.size() >= kKnown &&
                    operands[0].isValue() && operands[1].kind == OperandKind::kInt && operands[2].isValue() &&
                    std::all_of(operands.begin() + kKnown, operands.end(),
                                [](const Operand& o) { return o.kind == OperandKind::kInt && o.i == 1; });
  if (!fits) {
    return std::nullopt;
  }
  runtime::NativeCall::Rows rows{.update = {kind, operands[1].i}, .index = slots[1], .source = slots[1]};
  const Operand& from = operands[3];
  if (kind == Kind::kScatterNumber) {
    const bool isInt = from.kind == OperandKind::kInt;
    rows.update.number = isInt ? static_cast<double>(from.i) : from.f;
    return isInt || from.kind == OperandKind::kFloat ? std::optional(rows) : std::nullopt;
  }
  if (!from.isValue() || slots.size() != 3) {
    return std::nullopt;
  }
  rows.source = slots[2];
  return rows;
}

}  // namespace kintsugi::driver
