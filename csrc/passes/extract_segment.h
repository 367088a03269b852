// One segment of a trace as a trace of its own: what a background compiler keeps of it.
//
// The result starts with `segment [inputs]` and ends with `segment.end [outputs]`; between them stand the
// instructions of the graph, without snapshots. Values are renumbered, the inputs first; metadata keeps
// its numbers. What is not part of the graph (deferrable effects) is left out. Pure function, no GIL.
#pragma once

#include "ir/segments.h"

namespace kintsugi::passes {

// `types`: of the values of `trace`, where more is known of them than it says.
ir::Trace extractSegment(const ir::Trace& trace, const ir::SegmentRange& range,
                         std::span<const ir::Type> types);
inline ir::Trace extractSegment(const ir::Trace& trace, const ir::SegmentRange& range) {
  return extractSegment(trace, range, trace.values);
}

}  // namespace kintsugi::passes
