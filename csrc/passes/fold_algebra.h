// Rewrites computations to ones of the same value that cost less: a table of rules.
//
//   %1 = div(%0, 4)      =>      %1 = mul(%0, 0.25)
//
//   %1 = tanh(%0)                %1 = mul(%0, -2)
//   %2 = add(1, %1)      =>      %2 = exp(%1)
//                                %3 = add(1, %2)
//                                %4 = div(2, %3)
//
// A rule says what it matches and makes the value anew. Most give the same bits; the others, like the second
// one here, are applied with `contract` alone and must be as exact as ATen's own way, NaN, infinities and
// signed zeros included. A rule that computes an argument again requires that the argument has no other user
// in another way. Pure function, linear in the size of the graph, no GIL.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void foldAlgebra(TensorGraph& graph, bool contract = false);

}  // namespace kintsugi::passes
