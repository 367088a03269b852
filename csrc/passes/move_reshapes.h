// Moves reshapes after the computations that follow them.
//
//   %1 = mul(%0, %0) f32[2,6]              %1 = mul(%0, %0) f32[2,6]
//   %2 = view(%1) f32[2,2,3]         =>    %2 = add(%1, %4) f32[2,6]      %4: %3 seen as [2,6]
//   %3' = add(%2, %3) f32[2,2,3]           %3' = view(%2) f32[2,2,3]
//
// Idea: what works element by element may do so in the shape that its argument was computed in; then both are
// one kernel, which nothing need be stored for in between. Done where the argument is a reshape of something
// computed, contiguous on both sides, and where all other arguments can be seen in that shape without a copy.
// Reductions move likewise where the dimensions that they reduce are the same in both shapes. Pure function,
// no GIL; sizes may vary.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void moveReshapes(TensorGraph& graph);

// Strides that visit the same elements in the same order in another shape of as many elements, where there
// are such: 0 along dimensions of size 1.
std::optional<std::vector<Size>> stridesInShape(const std::vector<Size>& sizes,
                                                const std::vector<Size>& strides,
                                                const std::vector<Size>& shape);

}  // namespace kintsugi::passes
