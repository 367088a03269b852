#include "guard/shown_values.h"

#include <unordered_set>
#include <vector>

#include "ir/segments.h"

namespace kintsugi::guard {

using ir::Op;
using ir::Operand;
using ir::OperandKind;

bool isGiven(const Document& document, const ir::Instruction& ins,
             const std::function<bool(ir::ValueId)>& isMade) {
  const ir::Trace& trace = document.trace;
  if (ins.op == Op::kCall || ins.op == Op::kGuardBlock) {
    return true;
  }
  if (ir::isGraphOp(ins.op) || ins.op == Op::kGuardTrue || ins.op == Op::kGuardFalse ||
      ins.op == Op::kGuardValue || ins.op == Op::kGuardMeta) {
    return false;  // numbers and questions
  }
  const auto operands = trace.operandsOf(ins);
  std::vector<Operand> open(operands.begin(), operands.end());
  std::unordered_set<uint32_t> recipes;
  while (!open.empty()) {
    const Operand next = open.back();
    open.pop_back();
    if (next.kind == OperandKind::kValue) {
      if (isMade(next.id)) return true;
    } else if (next.kind == OperandKind::kSource) {
      const SourceNode* node = &document.sources.nodes[next.id];
      while (node->parent != ir::kNone) node = &document.sources.nodes[node->parent];
      if (node->kind == SourceKind::kValue && isMade(static_cast<ir::ValueId>(node->index))) return true;
    } else if (next.kind == OperandKind::kRecipe && recipes.insert(next.id).second) {
      const std::vector<Operand>& parts = trace.recipes[next.id].parts;
      open.insert(open.end(), parts.begin(), parts.end());
    } else if (next.kind == OperandKind::kList) {
      const auto elements = trace.listOf(next);
      open.insert(open.end(), elements.begin(), elements.end());
    }
  }
  return false;
}

}  // namespace kintsugi::guard
