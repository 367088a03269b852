// Stops: modelled calls in the middle of a segment's graph.
//
//   segment [%0]
//   %1 = aten.relu.default %0 : tensor snap !0
//   %2 = call.known #1, %1 : object snap !0     made when %1 has been computed
//   guard.block 1 snap !0
//   %3 = input $1 : tensor                      the graph goes on with what it gave
//   %4 = aten.neg.default %3 : tensor snap !0
//   segment.end [%4]
//
// The function that computes the graph stops at such a call: it passes the values that the call and the steps
// before it need, and receives the tensors and numbers that they make. A deferrable call is not a stop, since
// it can run after the whole graph. Plain functions, no state, no GIL.
#pragma once

#include <vector>

#include "ir/segments.h"

namespace kintsugi::ir {

// Is an instruction between the marks of a segment a stop?
inline bool isStop(const Instruction& ins) {
  return ins.op == Op::kCallKnown && !ins.deferrable && ins.region == RegionMark::kNone;
}

// May a graph go on with a value of this kind that a stop has made?
inline bool isOfGraphs(TypeKind kind) {
  return kind == TypeKind::kTensor || kind == TypeKind::kInt || kind == TypeKind::kFloat;
}

struct SegmentStop {
  uint32_t call = 0;  // index of the call
  uint32_t end = 0;   // index after the call and the guard block of its result
  // Values that the graph has made and that the call, or a step after it, needs; and inputs of the graph that
  // are arguments of the call.
  std::vector<ValueId> given;
  // Tensors and numbers that the graph may take after the stop: `input`s right after the call.
  std::vector<ValueId> made;
};
// The stops of a segment, in order.
std::vector<SegmentStop> findStops(const Trace& trace, const SegmentRange& range);

}  // namespace kintsugi::ir
