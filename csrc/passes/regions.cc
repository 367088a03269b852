#include "passes/regions.h"

#include <algorithm>

#include "support/check.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::RegionMark;

std::vector<Region> findRegions(const ir::Trace& trace, uint32_t start,
                                const std::function<bool(const Instruction&)>& mayBeInside) {
  const auto size = static_cast<uint32_t>(trace.code.size());
  KINTSUGI_CHECK(start <= size, "instruction ", start, " of ", size);
  std::vector<Region> regions;
  std::vector<size_t> open;
  bool behindEnd = false;  // the guard block of an end comes next
  for (uint32_t i = 0; i < size; ++i) {
    const Instruction& ins = trace.code[i];
    const bool isEnd = ins.op == ir::Op::kCallKnown && ins.region != RegionMark::kNone;
    const bool isTaken = behindEnd && ins.op == ir::Op::kGuardBlock;
    behindEnd = isEnd;
    if (isEnd && ins.region == RegionMark::kOpens) {
      open.push_back(regions.size());
      regions.push_back({i, size, i >= start});
    } else if (isEnd && !open.empty()) {
      regions[open.back()].closes = i;
      open.pop_back();
    } else if (!isTaken && !open.empty() && !mayBeInside(ins)) {
      std::for_each(open.begin(), open.end(), [&](size_t each) { regions[each].whole = false; });
    }
  }
  for (Region& region : regions) region.whole = region.whole && region.closes != size;
  // What is inside one that is not whole is none by itself: it runs again with all of the other.
  for (Region& region : regions) {
    region.whole = region.whole && std::none_of(regions.begin(), regions.end(), [&](const Region& outer) {
                     return !outer.whole && outer.opens < region.opens && region.opens < outer.closes;
                   });
  }
  return regions;
}

}  // namespace kintsugi::passes
