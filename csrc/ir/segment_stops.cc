#include "ir/segment_stops.h"

#include <algorithm>
#include <utility>

#include "ir/reach.h"

namespace kintsugi::ir {

std::vector<SegmentStop> findStops(const Trace& trace, const SegmentRange& range) {
  std::vector<SegmentStop> stops;
  std::vector<bool> waiting(trace.values.size());  // made by the graph, and not given yet
  std::vector<ValueId> given;
  ReachWalker walker(trace);
  for (uint32_t i = range.begin + 1; i < range.end; ++i) {
    Instruction ins = trace.code[i];
    if (isInGraph(ins)) {
      std::fill_n(waiting.begin() + ins.firstResult, ins.resultCount, true);
    } else {
      ins.snap = kNone;
      walker.instruction(
          ins,
          [&](ValueId value) {
            if (waiting[value]) {
              given.push_back(value);
            }
            waiting[value] = false;
          },
          [](SourceId) {});
      if (isStop(ins)) {
        const uint32_t end = i + (trace.code[i + 1].op == Op::kGuardBlock ? 2 : 1);
        stops.push_back({i, end, std::exchange(given, {}), {}});
        for (uint32_t k = end; trace.code[k].op == Op::kInput; ++k) {
          if (trace.values[trace.code[k].firstResult].kind == TypeKind::kTensor) {
            stops.back().made.push_back(trace.code[k].firstResult);
          }
        }
      }
    }
  }
  return stops;
}

}  // namespace kintsugi::ir
