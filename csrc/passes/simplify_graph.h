// Passes over tensor graphs: copies that nobody needs, nodes that compute the same, nodes that nobody uses.
//
// What a node is to the outside is kept: an output stays a tensor of its own even where another node has the
// same values. Calls go only where their results are surely new (Node::fresh) and unused. Pure functions, no
// GIL.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void dropCopies(TensorGraph& graph);
void mergeEqualNodes(TensorGraph& graph);
void dropUnusedNodes(TensorGraph& graph);  // and renumbers the others

// Nodes whose tensors the outside gets to see: outputs, and what the views among them look at.
std::vector<bool> escapingNodes(const TensorGraph& graph);
// Nodes whose values differ from run to run, as far as the graph says.
std::vector<bool> varyingNodes(const TensorGraph& graph);

}  // namespace kintsugi::passes
