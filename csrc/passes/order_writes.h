// Stores to the memory of inputs: which kernel makes them, and when.
//
//   %4 = mul(%0, %2) f32[8]                     %4 = mul(%0, %2) f32[8]
//   outputs %4        a Write to %0      =>     %5 = cast(%4) f32[8] in %0 at 0
//
// Idea: what is to be stored becomes a node of its own whose home is the input; it is a leaf that nothing
// reads. Until the first store of a run everything can be given up, so all that may fail or reads what was
// there runs before. A store is made by the kernel that computes what is stored where that kernel can come
// this late: it looks nothing up, all that uses its results are such kernels, it reads what it overwrites
// element by element at the same place, and no circle of kernels waits for each other's memory. What is left
// is computed into memory of its own and copied behind all else, in the order of the program.
//
// Pure functions, linear in the size of the graph for each store that can't be made at once; no GIL.
#pragma once

#include <vector>

#include "passes/group_nodes.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

// The last of `outputs` become nodes. Behind all other passes over the graph.
void placeWrites(TensorGraph& graph);

// Groups that run behind all other steps, in order. Stores that can't be made where they are computed become
// groups of their own.
std::vector<uint32_t> lastGroups(const TensorGraph& graph, Grouping& grouping);

}  // namespace kintsugi::passes
