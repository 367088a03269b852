#include "passes/part_writes.h"

#include <algorithm>
#include <vector>

#include "ir/segments.h"
#include "passes/build_graph.h"
#include "passes/foreach_ops.h"
#include "passes/operator_rules.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::ValueId;

bool mayBeWrite(std::string_view name) {
  if (const auto many = findForeach(name)) {
    return decompositionOf(many->each) != nullptr;
  }
  return ops::isInPlace(name) && decompositionOf(ops::formOf(name)) != nullptr;
}

PartWrites::ViewOfBase PartWrites::viewOfBase(ValueId value) const {
  const auto found = viewsOfBases_.find(value);
  return found != viewsOfBases_.end() ? found->second : ViewOfBase{value, value, false};
}

bool PartWrites::needsCut(const Instruction& ins) const {
  if (ins.op != Op::kAten) {
    return false;
  }
  const std::string& name = trace_.opNames[ins.opName];
  const auto operands = trace_.operandsOf(ins);
  const bool writes = ops::isInPlace(name) && !operands.empty() && operands[0].isValue();
  if (writes && viewOfBase(operands[0].id).moves) {
    return true;
  }
  if (written_.empty() || isView(ops::find(name))) {
    return false;
  }
  std::vector<ValueId> used;
  ir::collectValues(
      trace_, operands.subspan(writes && ops::has(ops::formOf(name), ops::Trait::kStoresOnly) ? 1 : 0), used);
  return std::any_of(used.begin(), used.end(), [&](ValueId value) {
    const ViewOfBase look = viewOfBase(value);
    const auto part = written_.find(look.base);
    return part != written_.end() && part->second != look.tensor;
  });
}

void PartWrites::add(const Instruction& ins) {
  const auto operands = trace_.operandsOf(ins);
  if (ins.op != Op::kAten || operands.empty() || !operands[0].isValue()) {
    return;
  }
  const std::string& name = trace_.opNames[ins.opName];
  const ViewOfBase look = viewOfBase(operands[0].id);
  if (isView(ops::find(name))) {
    std::vector<ValueId> used;
    ir::collectValues(trace_, operands, used);
    const bool numbers = std::any_of(used.begin(), used.end(), [&](ValueId value) {
      return trace_.values[value].kind != ir::TypeKind::kTensor;
    });
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      viewsOfBases_[ins.firstResult + r] = {look.base, ins.firstResult + r, look.moves || numbers};
    }
  } else if (ops::isInPlace(name) && ins.resultCount == 1) {
    viewsOfBases_[ins.firstResult] = look;
    if (look.tensor != look.base) {
      const auto [part, first] = written_.try_emplace(look.base, look.tensor);
      part->second = first || part->second == look.tensor ? look.tensor : ir::kNone;
    }
  }
}

void PartWrites::clear() {
  viewsOfBases_.clear();
  written_.clear();
}

}  // namespace kintsugi::passes
