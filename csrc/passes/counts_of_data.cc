#include "passes/counts_of_data.h"

#include <algorithm>

#include "ir/segments.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::TypeKind;
using ir::ValueId;

std::vector<bool> findCountsOfData(const ir::Trace& trace, OperatorTraitsFn traitsOf) {
  std::vector<bool> found(trace.code.size());
  std::vector<bool> ofData(trace.values.size());  // sizes of tensors, and numbers
  std::vector<ValueId> used;
  for (size_t i = 0; i < trace.code.size(); ++i) {
    const Instruction& ins = trace.code[i];
    if (!ir::isGraphOp(ins.op)) continue;
    used.clear();
    ir::collectValues(trace, trace.operandsOf(ins), used);
    bool given = std::ranges::any_of(used, [&](ValueId value) { return ofData[value]; });
    if (ins.op == Op::kAten) {
      const OperatorTraits traits = traitsOf(trace.opNames[ins.opName]);
      found[i] = given && traits.countOfSizes;
      given = given || traits.sizesOfData || traits.sizesFromMask;
    }
    for (uint32_t r = 0; given && r < ins.resultCount; ++r) {
      const ir::Type& type = trace.values[ins.firstResult + r];
      ofData[ins.firstResult + r] = type.kind != TypeKind::kTensor || !trace.hasFixedSizes(type);
    }
  }
  return found;
}

}  // namespace kintsugi::passes
