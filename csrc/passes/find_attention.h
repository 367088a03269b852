// Finds attention that a program writes out, and makes it one node (passes/attention.h).
//
//   %1 = product(%q, %kt) f32[2,4,16,16]
//   %2 = mul(%1, 0.125) ...  masks, biases
//   %3..%7 = softmax of the last dimension                    =>    %8 = attention(%q, %kt, %v, ...)
//   %8 = product(%7, %v) f32[2,4,16,8]
//
// Idea: starting from a product whose left side is a softmax, what the softmax is of is followed back to one
// product; all operators between them have to be elementwise, and to have no other user. Everything
// else that goes in is loaded. Where heads are then transposed and copied, the kernel stores them there. Pure
// function, no GIL; sizes may vary; needs a SizeScope.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void findAttention(TensorGraph& graph, const ir::Trace& trace);

}  // namespace kintsugi::passes
