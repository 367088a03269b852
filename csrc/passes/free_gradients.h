// What is left of a segment's backward when all that eager mode keeps for it has been freed: the way through
// operators that keep nothing (a + b, a sum, a view). Eager mode runs there as often as one likes.
//
// Idea: gradients on this way depend on sizes, strides and types alone. So the operators of the way run again
// with autograd, on tensors that lie like those of the forward and hold anything.
//
// Pure function, no GIL.
#pragma once

#include <optional>
#include <vector>

#include "passes/gradient_graph.h"

namespace kintsugi::passes {

struct FreeGradients {
  ir::Trace segment;                     // gives the node's outputs that autograd follows
  std::vector<ir::TensorLayout> inputs;  // of the segment
  std::vector<uint32_t> leaves;          // by `gets`: the input that stands for it; kNone: no way leads there
};

// `gets`: the segment's inputs that get gradients. Nothing: there is no such way.
std::optional<FreeGradients> freeGradients(const GradientGraph& graph, const std::vector<uint32_t>& gets);

}  // namespace kintsugi::passes
