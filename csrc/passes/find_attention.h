// Finds attention that a program writes out, and makes it one node (passes/attention.h).
//
//   %1 = product(%q, %kt) f32[2,4,16,16]
//   %2 = mul(%1, 0.125) ...  masks, biases
//   %3..%7 = softmax of the last dimension                    =>    %8 = attention(%q, %kt, %v, ...)
//   %8 = product(%7, %v) f32[2,4,16,8]
//
// Idea: the search starts at a product whose left operand is a softmax, and goes from the softmax's argument
// back to another product, through elementwise operators that have no other user. Their other operands
// (masks, biases) are loaded by the kernel. If the result is transposed and copied afterwards (heads beside
// each other), the kernel stores it in that layout. Pure function, no GIL; sizes may vary; needs a SizeScope.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void findAttention(TensorGraph& graph, const ir::Trace& trace);

}  // namespace kintsugi::passes
