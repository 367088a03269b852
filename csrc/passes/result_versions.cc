#include "passes/result_versions.h"

#include "ir/segments.h"
#include "ops/operator.h"
#include "passes/kept_by_eager.h"

namespace kintsugi::passes {

using ir::ValueId;

namespace {

// By value. Where it is not known whose memory a value has, `base` is kNone.
struct Memory {
  ValueId base = ir::kNone;
  bool isView = false;
  uint32_t before = 0;  // writes to the base before the view was made
};

}  // namespace

std::vector<ir::ResultVersion> resultVersions(const ir::Trace& segment) {
  std::vector<Memory> memory(segment.values.size());
  std::vector<bool> isInput(segment.values.size(), false);
  std::vector<uint32_t> writes(segment.values.size(), 0);  // by base
  std::vector<ValueId> values;
  for (const ir::Instruction& ins : segment.code) {
    values.clear();
    ir::collectValues(segment, segment.operandsOf(ins), values);
    if (ins.op == ir::Op::kSegment) {
      for (const ValueId value : values) memory[value].base = value, isInput[value] = true;
    }
    if (ins.op != ir::Op::kAten) continue;
    const auto operands = segment.operandsOf(ins);
    if (ops::isInPlace(segment.opNames[ins.opName]) && !operands.empty()) {
      std::vector<ValueId> targets;
      ir::collectValues(segment, operands.first(1), targets);
      for (size_t k = 0; k < targets.size(); ++k) {
        const Memory& target = memory[targets[k]];
        if (target.base != ir::kNone) ++writes[target.base];
        if (k < ins.resultCount) memory[ins.firstResult + k] = target;
      }
      continue;
    }
    const Sharing sharing = sharingOf(segment, ins);
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      Memory& made = memory[ins.firstResult + r];
      if (sharing == Sharing::kNone) {
        const std::string_view name = segment.opNames[ins.opName];
        const bool fresh = values.empty() || ops::has(name, ops::Trait::kFresh) ||
                           ops::has(name, ops::Trait::kMakesEmpty) || isConverted(segment, ins);
        made.base = fresh ? ins.firstResult + r : ir::kNone;
      } else if (operands[0].isValue()) {
        made = memory[operands[0].id];
        if (sharing != Sharing::kView || made.base == ir::kNone) continue;
        made.isView = true;
        made.before = writes[made.base];
      }
    }
  }
  std::vector<ir::ResultVersion> versions;
  values.clear();
  ir::collectValues(segment, segment.operandsOf(segment.code.back()), values);
  for (uint32_t k = 0; k < values.size(); ++k) {
    const Memory& made = memory[values[k]];
    if (made.base == ir::kNone || writes[made.base] == 0) continue;
    if (!isInput[made.base]) {
      versions.push_back({.output = k, .isOwn = true, .writes = writes[made.base]});
    } else if (made.isView) {
      versions.push_back({.output = k, .isOwn = false, .writes = writes[made.base] - made.before});
    }
  }
  return versions;
}

}  // namespace kintsugi::passes
