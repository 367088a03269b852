// Simplifications of tensor graphs: removes copies, merges nodes that compute the same, drops unused nodes.
//
//   %1 = add(%0, %0)
//   %2 = add(%0, %0)             --->      %1 = add(%0, %0)
//   %3 = mul(%1, %2)                       %3 = mul(%1, %1)
//
// The program can't tell the difference: an output stays a tensor of its own even if another node has the
// same values. A call is dropped only if its results are surely new tensors (Node::fresh) and unused. Pure
// functions, no GIL.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void dropCopies(TensorGraph& graph);
void mergeEqualNodes(TensorGraph& graph);
void dropUnusedNodes(TensorGraph& graph);  // and renumbers the others

// Nodes whose memory leaves the graph: outputs, and the bases of outputs that are views.
std::vector<bool> escapingNodes(const TensorGraph& graph);
// Nodes whose values differ from run to run, as far as the graph says.
std::vector<bool> varyingNodes(const TensorGraph& graph);

}  // namespace kintsugi::passes
