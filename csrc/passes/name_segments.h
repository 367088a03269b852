// Names the values that enter and leave segments, at the marks of a trace that has been cut: an input is used
// in the segment's graph and made outside, an output is made there and used elsewhere.
//
//   segment                          segment [%0]
//     %1 = aten.relu.default %0        %1 = aten.relu.default %0
//   segment.end                      segment.end [%1]
//   ret %1                           ret %1
//
// A part of the pass `segments` (passes/segments.h). Pure function, no GIL. Linear in the size of the trace.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::passes {

// Where the segments are.
struct SegmentPlaces {
  std::vector<uint32_t> graph;  // by instruction: the segment whose graph it is in; kNone: it is in none
  // Instructions inside segments all of whose values, those of their frames too, have to be outputs: these
  // are not computed once more.
  std::vector<uint32_t> framed;
  uint32_t count = 0;  // of segments
  uint32_t start = 0;  // marks before it have their names already
};

// `code`: the instructions that the trace will have, marks among them.
void nameSegmentValues(ir::Trace& trace, std::vector<ir::Instruction>& code, const SegmentPlaces& places);

}  // namespace kintsugi::passes
