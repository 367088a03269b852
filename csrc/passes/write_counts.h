// How often eager mode counts the writes of a segment, in the version counters of its inputs and results.
//
//   %1 = aten.add_.Tensor %0, 1        one more for the input %0
//   %2 = aten.select.int %0, 0, 0
//   %3 = aten.zero_.default %2         and one more
//   %4 = aten.clone.default %0         0 for the result %4
//
// A functionalizing backend counts otherwise: it writes once, in the end, and says so once more. Where the
// graph stops (ir/segment_stops.h), what the steps of the program are given is counted, and inputs are not,
// since a step may write to them too. Pure function, no GIL.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/segment_stops.h"
#include "ir/trace.h"

namespace kintsugi::passes {

struct WriteCounts {
  std::vector<uint32_t> inputs;                             // writes to each; empty: they are not counted
  std::vector<std::optional<uint32_t>> outputs;             // versions of those that the segment has made
  std::vector<std::vector<std::optional<uint32_t>>> stops;  // by stop: the same of what it is given
};

// Does the operator store its results in arguments (`out=`)? It resizes those that do not fit.
bool storesResults(std::string_view name);

// Does eager mode count one write for each tensor that the operator writes to?
using CountsOnce = bool (*)(std::string_view name);

// Nothing: the segment holds a write that is not understood, or it neither writes nor makes tensors of
// nothing (`torch.zeros()`, which counts one write if a graph calls it).
std::optional<WriteCounts> writeCounts(const ir::Trace& trace, const ir::SegmentRange& range,
                                       std::span<const ir::SegmentStop> stops, CountsOnce countsOnce,
                                       bool (*writes)(std::string_view name));

}  // namespace kintsugi::passes
