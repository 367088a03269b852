// For passes that replace nodes of a tensor graph: visits all nodes in order and builds the graph again.
//
//   rewriteNodes(graph, [&](NodeId, Node& node) {
//     return isReplaced(node) ? addReplacement(graph, node) : graph.add(std::move(node));
//   });
//
// Pure function, linear in the size of the graph, no GIL.
#pragma once

#include <utility>
#include <vector>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

// `make(old, node)` is given each node with the new ids of its arguments; it adds to the graph, which is
// empty at first, and says which node stands for the old one. Inputs and outputs follow.
template <class Make>
void rewriteNodes(TensorGraph& graph, Make make) {
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  std::vector<NodeId> to(nodes.size(), ir::kNone);
  for (NodeId id = 0; id < nodes.size(); ++id) {
    for (NodeId& arg : nodes[id].args) {
      arg = to[arg];
    }
    to[id] = make(id, nodes[id]);
  }
  for (std::vector<NodeId>* ids : {&graph.inputs, &graph.outputs}) {
    for (NodeId& id : *ids) {
      id = id == ir::kNone ? id : to[id];
    }
  }
}

}  // namespace kintsugi::passes
