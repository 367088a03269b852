// The part of a segment's backward that needs no saved tensor: the path of gradients through operators that
// save none (a + b, a sum, a view). In eager mode it can run again after the saved tensors have been freed.
//
//   y = x.sin() + b        y.backward() twice, the second time for the gradient of b alone
//
// Idea: gradients on this path depend on sizes, strides and dtypes alone. So its operators run again with
// autograd, on new tensors that have the layouts of the forward's and any contents.
//
// Pure function, no GIL.
#pragma once

#include <optional>
#include <vector>

#include "passes/gradient_graph.h"

namespace kintsugi::passes {

struct FreeGradients {
  ir::Trace segment;                     // computes the node's outputs that autograd follows
  std::vector<ir::TensorLayout> inputs;  // of `segment`
  std::vector<uint32_t> leaves;          // by `gets`: the index of the input; kNone: not on the path
};

// `gets`: the segment's inputs that get gradients. Nothing: no output is reached without saved tensors.
std::optional<FreeGradients> freeGradients(const GradientGraph& graph, const std::vector<uint32_t>& gets);

}  // namespace kintsugi::passes
