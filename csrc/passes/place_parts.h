// Computes the parts of a concatenation directly in its memory, so that nothing is copied.
//
//   %2 = mul(%0, %0) f32[5,8]                        %2 = mul(%0, %0) f32[5,8] strides=[16,1] in %4 at 0
//   %4 = join 1(%2, %1) f32[5,16]            =>      %3 = cast(%1) f32[5,8] strides=[16,1] in %4 at 8
//                                                    %4 = join 1(%2, %3) f32[5,16]
//
// Idea: the result of a kernel or a product may lie anywhere, so its home becomes a slice of the
// concatenation; other readers read that slice. A part that can't move (it leaves the segment, a call uses
// it, it belongs to another concatenation, it is an input) is copied by a kernel. So is a part of which a
// view exists that the slice could not provide. Concatenations may be nested. If nearly everything would be
// copied, or slices are narrow, the concatenation is a call of the operator again. Sizes may vary as long as
// each slice begins at the same place in every run. Linear in the size of the graph for each part. Pure
// function, no GIL.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void placeParts(TensorGraph& graph);

}  // namespace kintsugi::passes
