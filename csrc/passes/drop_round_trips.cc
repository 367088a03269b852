#include "passes/drop_round_trips.h"

namespace kintsugi::passes {

void dropRoundTrips(TensorGraph& graph) {
  const auto isCast = [](const Node& node) {
    return node.kind == NodeKind::kPoint && node.op == Core::kCast;
  };
  for (Node& node : graph.nodes) {
    if (!isCast(node)) continue;
    const Node& wide = graph.nodes[node.args[0]];
    if (!isCast(wide)) continue;
    const Elem from = graph.nodes[wide.args[0]].elem;
    if (from == node.elem && holdsAll(from, wide.elem)) {
      node.args[0] = wide.args[0];
    }
  }
}

}  // namespace kintsugi::passes
