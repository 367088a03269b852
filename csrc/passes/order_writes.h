// Schedules stores to the memory of inputs: which kernel makes each of them, and when.
//
//   %4 = mul(%0, %2) f32[8]                     %4 = mul(%0, %2) f32[8]
//   outputs %4        a Write to %0      =>     %5 = cast(%4) f32[8] in %0 at 0
//
// Idea: a value that is stored becomes a node whose home is the input; nothing reads that node. A run can be
// given up until its first store, so everything that may fail, or that reads the old contents, runs before.
// A kernel stores its result directly if it can run that late: it does no checked look-ups, only such kernels
// use its results, it reads what it overwrites element by element at the same place, and no cycle of kernels
// waits for each other's memory. Other values are computed into memory of their own and copied at the end, in
// the order of the program.
//
// Pure functions, linear in the size of the graph for each store that can't be made at once; no GIL.
#pragma once

#include <vector>

#include "passes/group_nodes.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

// The last of `outputs` become nodes. After all other passes over the graph.
void placeWrites(TensorGraph& graph);

// Groups that run after all other steps, in order. Stores that can't be made where they are computed become
// groups of their own.
std::vector<uint32_t> lastGroups(const TensorGraph& graph, Grouping& grouping);

}  // namespace kintsugi::passes
