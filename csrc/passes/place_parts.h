// Computes the parts of concatenations right where they belong.
//
//   %2 = mul(%0, %0) f32[5,8]                        %2 = mul(%0, %0) f32[5,8] strides=[16,1] in %4 at 0
//   %4 = join 1(%2, %1) f32[5,16]            =>      %3 = cast(%1) f32[5,8] strides=[16,1] in %4 at 8
//                                                    %4 = join 1(%2, %3) f32[5,16]
//
// Idea: what a kernel or a product makes may lie anywhere, so it is given the concatenation's memory as its
// home; who else reads it reads that slice. Where that can't be (the outside or a call looks at the part, it
// belongs to another concatenation already, it comes from outside), a kernel copies it. A view of a part that
// is no view of the slice keeps it where it is. A concatenation may itself lie within another one. Those of
// which nearly everything would have to be copied, and those of narrow slices, are calls again. Sizes may
// vary as long as slices begin at the same place in every run. Linear in the size of the graph, for each
// part. Pure function, no GIL.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void placeParts(TensorGraph& graph);

}  // namespace kintsugi::passes
