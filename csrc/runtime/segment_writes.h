// Inside runtime only: which inputs of a segment's graph have to be restored before a graph that has raised
// can be run again.
//
//   %1 = aten.index_add_.default %0, 0, %i, %s     may raise behind good indices, which it has added then
//   %3 = aten.copy_.default %2, %s                 runs before something that may raise
//
// A copy is made of what is written to, in front of each run. None is needed where the graph can't raise
// any more once it has begun to write, or where running it again writes the same: only stores, once, to what
// nothing has read before (a cache of keys and values). What then is restored is the version counter. For a
// graph that is rolled back where nothing was to be written, `all` is copied.
//
// Pure function. Linear in the size of the graph.
#pragma once

#include <span>
#include <vector>

#include "ir/trace.h"
#include "runtime/segment_run.h"

namespace kintsugi::runtime {

// `graph`: its instructions, in order.
std::vector<SegmentCode::Restored> findRestored(const ir::Trace& trace, std::span<const ir::ValueId> inputs,
                                                std::span<const ir::Instruction* const> graph, bool all);

}  // namespace kintsugi::runtime
