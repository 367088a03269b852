// Horizontal fusion: merges independent groups into one kernel, where that saves time.
//
//   %1 = reduce.sum(%0)                        one kernel, which reads %0 once
//   %2 = reduce.max(%0)                  =>
//   %3 = mul(%0, %4)
//
// Idea: two groups over the same elements that do not depend on each other can share one loop. Levels
// (passes/group_nodes.h) show that: there has to be a level at which both can stand. It pays if they read the
// same memory, or if there is so little to compute that launching a kernel takes as long, and while neither
// registers nor memory streams run out. Groups whose results are equal in every run are not merged with
// others. Deterministic; about linear in the size of the graph. Pure function, no GIL.
#pragma once

#include "passes/group_nodes.h"

namespace kintsugi::passes {

void mergeIsomorphic(const TensorGraph& graph, Grouping& grouping);

}  // namespace kintsugi::passes
