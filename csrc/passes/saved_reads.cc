#include "passes/saved_reads.h"

#include <algorithm>
#include <span>

namespace kintsugi::passes {

using ir::Operand;
using ir::ValueId;

bool SavedReads::isSeen(ValueId value) const {
  const auto inputs = std::span(graph_.inputs).first(inputs_);
  return std::ranges::find(inputs, value) != inputs.end() ||
         std::ranges::find(graph_.outputs, value) != graph_.outputs.end();
}

// Follows views to the nearest visible tensor that has the value's memory. `least`: how close the views have
// to be. Returns the last tensor reached if none is visible.
ValueId SavedReads::baseOf(ValueId value, Sharing least) const {
  while (!isSeen(value) && value < madeBy_.size() && madeBy_[value] != ir::kNone) {
    const ir::Instruction& ins = trace_.code[madeBy_[value]];
    if (sharingOf(trace_, ins) < least) break;
    value = trace_.operandsOf(ins)[0].id;
  }
  return value;
}

ValueId SavedReads::nowOf(ValueId base) {
  const auto found = std::ranges::find_if(graph_.now, [&](const auto& pair) { return pair.second == base; });
  if (found != graph_.now.end()) return found->first;
  ir::Type type = trace_.values[base];
  ir::TensorDesc meta = trace_.metas[type.meta];
  meta.requiresGrad = meta.isParam = false;
  type.meta = trace_.internMeta(std::move(meta));
  graph_.now.emplace_back(trace_.addValue(type), base);
  return graph_.now.back().first;
}

ValueId SavedReads::readOf(ValueId value, const std::vector<KeptByEager>& kept) {
  if (!isSeen(baseOf(value, Sharing::kView))) return value;
  const auto entry = std::ranges::find(kept, value, &KeptByEager::value);
  if (entry == kept.end() || entry->as == KeptByEager::As::kCopy) {
    ok_ = false;
    return value;
  }
  const ValueId same = baseOf(value, Sharing::kItself);
  return entry->as == KeptByEager::As::kItself && isSeen(same) ? nowOf(same) : value;
}

bool SavedReads::redirectReads(const std::vector<KeptByEager>& kept, size_t first) {
  ok_ = true;
  for (const uint32_t at : std::span(graph_.backward).subspan(first)) {
    const ir::Instruction ins = trace_.code[at];
    for (uint32_t k = 0; k < ins.operandCount; ++k) {
      const Operand operand = trace_.operands[ins.firstOperand + k];
      if (operand.isValue()) trace_.operands[ins.firstOperand + k].id = readOf(operand.id, kept);
    }
  }
  return ok_;
}

void SavedReads::note(const std::vector<KeptByEager>& kept, const SavedByEager& node) {
  for (const KeptByEager& each : kept) {
    const ValueId base = baseOf(each.value, Sharing::kView);
    if (each.as == KeptByEager::As::kCopy || !isSeen(base)) continue;
    graph_.saved.push_back(node);
    graph_.saved.back().base = base;
    if (!each.alone.empty()) graph_.saved.back().followed = each.alone;
  }
}

void SavedReads::redirectLeaves() {
  for (auto& [leaf, value] : graph_.leaves) value = baseOf(value, Sharing::kItself);
  std::erase_if(graph_.leaves, [&](const auto& pair) { return !isSeen(pair.second); });
}

}  // namespace kintsugi::passes
