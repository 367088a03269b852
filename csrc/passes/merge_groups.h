// Makes one kernel of several that have nothing to do with each other, where that saves time.
//
//   %1 = reduce.sum(%0)                        one kernel, which reads %0 once
//   %2 = reduce.max(%0)                  =>
//   %3 = mul(%0, %4)
//
// Idea: two groups over the same elements, neither of which waits for the other, can be computed in one loop.
// Levels (passes/group_nodes.h) tell whether they wait: one has to be such that both can be there. It pays
// where they read the same memory, or where there is so little to compute that the start of a kernel takes as
// long; and as long as neither registers nor streams of memory run out. What is the same in every run stays
// apart from what is not. Deterministic; about linear in the size of the graph. Pure function, no GIL.
#pragma once

#include "passes/group_nodes.h"

namespace kintsugi::passes {

void mergeIsomorphic(const TensorGraph& graph, Grouping& grouping);

}  // namespace kintsugi::passes
