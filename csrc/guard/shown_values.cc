#include "guard/shown_values.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "ir/segments.h"

namespace kintsugi::guard {

using ir::Op;
using ir::Operand;
using ir::OperandKind;

namespace {

using IsMade = std::function<bool(ir::ValueId)>;

bool startsAt(const SourceTable& sources, SourceId id, const IsMade& isMade) {
  const SourceNode* node = &sources.nodes[id];
  while (node->parent != ir::kNone) node = &sources.nodes[node->parent];
  return node->kind == SourceKind::kValue && isMade(static_cast<ir::ValueId>(node->index));
}

// A block of guards may look at anything; one without guards takes over results.
bool isBlockGiven(const Document& document, BlockId block, const IsMade& isMade) {
  if (std::ranges::any_of(document.guards.guards, [&](const Guard& guard) { return guard.block == block; })) {
    return true;
  }
  const std::vector<SourceNode>& nodes = document.sources.nodes;
  for (SourceId id = 0; id < nodes.size(); ++id) {
    if (nodes[id].block == block && startsAt(document.sources, id, isMade)) return true;
  }
  return false;
}

}  // namespace

bool isGiven(const Document& document, const ir::Instruction& ins, const IsMade& isMade) {
  const ir::Trace& trace = document.trace;
  if (ins.op == Op::kCall) {
    return true;
  }
  if (ins.op == Op::kGuardBlock) {
    return isBlockGiven(document, static_cast<BlockId>(trace.operandsOf(ins)[0].i), isMade);
  }
  if (ir::isGraphOp(ins.op) || ir::isGuardOfValue(ins.op)) {
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
      if (startsAt(document.sources, next.id, isMade)) return true;
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
