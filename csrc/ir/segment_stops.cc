#include "ir/segment_stops.h"

#include <algorithm>
#include <utility>

#include "ir/reach.h"

namespace kintsugi::ir {

namespace {

class Finder {
 public:
  Finder(const Trace& trace, const SegmentRange& range)
      : trace_(trace), range_(range), waiting_(trace.values.size()), isInput_(trace.values.size()) {
    std::vector<ValueId> inputs;
    collectValues(trace, trace.operandsOf(trace.code[range.begin]), inputs);
    for (const ValueId value : inputs) {
      isInput_[value] = trace.values[value].kind == TypeKind::kTensor;
    }
  }

  std::vector<SegmentStop> run() {
    for (uint32_t i = range_.begin + 1; i < range_.end; ++i) {
      if (isStop(trace_.code[i])) {
        addStop(i);
      }
    }
    findNeeded();
    size_t next = 0;
    ReachWalker walker(trace_);
    for (uint32_t i = range_.begin + 1; i < range_.end; ++i) {
      Instruction ins = trace_.code[i];
      if (isInGraph(ins)) {
        for (uint32_t r = 0; r < ins.resultCount; ++r) {
          waiting_[ins.firstResult + r] = trace_.values[ins.firstResult + r].kind != TypeKind::kNone;
        }
        continue;
      }
      ins.snap = kNone;
      walker.instruction(
          ins, [&](ValueId value) { give(value); }, [](SourceId) {});
      if (isStop(ins)) {
        for (const ValueId value : needed_[next]) {
          give(value);
        }
        stops_[next++].given = std::exchange(given_, {});
      }
    }
    return std::move(stops_);
  }

 private:
  void addStop(uint32_t call) {
    SegmentStop& stop = stops_.emplace_back();
    stop.call = call;
    stop.end = call + (trace_.code[call + 1].op == Op::kGuardBlock ? 2 : 1);
    for (uint32_t i = stop.end; trace_.code[i].op == Op::kInput; ++i) {
      if (isOfGraphs(trace_.values[trace_.code[i].firstResult].kind)) {
        stop.made.push_back(trace_.code[i].firstResult);
      }
    }
  }

  void give(ValueId value) {
    const bool given = std::find(given_.begin(), given_.end(), value) != given_.end();
    if (waiting_[value] || (isInput_[value] && !given)) {
      given_.push_back(value);
    }
    waiting_[value] = false;
  }

  // What is computed before a stop is not computed again after it, as the step may have written to tensors.
  // So it is handed over if the call, or whatever follows, needs it, frames included.
  void findNeeded() {
    needed_.resize(stops_.size());
    std::vector<ValueId> later;
    std::vector<bool> seen(trace_.values.size());
    ReachWalker walker(trace_);
    size_t next = stops_.size();
    for (uint32_t i = range_.end + 1; i-- > range_.begin + 1;) {
      walker.instruction(
          trace_.code[i],
          [&](ValueId value) {
            if (!seen[value] && !isInput_[value]) {
              later.push_back(value);
            }
            seen[value] = true;
          },
          [](SourceId) {});
      if (next > 0 && i == stops_[next - 1].call) {
        needed_[--next] = later;
      }
    }
  }

  const Trace& trace_;
  const SegmentRange range_;
  std::vector<bool> waiting_;  // by value: made by the graph, and not handed over yet
  std::vector<bool> isInput_;  // by value: a tensor that the graph is given
  std::vector<SegmentStop> stops_;
  std::vector<std::vector<ValueId>> needed_;  // by stop: at it, or after it
  std::vector<ValueId> given_;                // to the next stop
};

}  // namespace

std::vector<SegmentStop> findStops(const Trace& trace, const SegmentRange& range) {
  return Finder(trace, range).run();
}

}  // namespace kintsugi::ir
