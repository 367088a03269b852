#include "passes/simplify_graph.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

namespace kintsugi::passes {

namespace {

// Uses of a node go to another one.
void redirect(TensorGraph& graph, const std::vector<NodeId>& to) {
  for (Node& node : graph.nodes) {
    for (NodeId& arg : node.args) {
      arg = to[arg];
    }
  }
  for (NodeId& output : graph.outputs) {
    output = output == ir::kNone ? output : to[output];
  }
}

std::vector<NodeId> everyNode(const TensorGraph& graph) {
  std::vector<NodeId> ids(graph.nodes.size());
  for (NodeId id = 0; id < ids.size(); ++id) {
    ids[id] = id;
  }
  return ids;
}

// Equal for nodes with equal values; `args` have been redirected already.
std::string keyOf(const Node& node) {
  std::string key;
  auto put = [&key](const auto& number) {
    char bytes[sizeof(number)];
    std::memcpy(bytes, &number, sizeof(number));
    key.append(bytes, sizeof(number));
  };
  put(node.kind);
  put(node.op);
  put(node.elem);
  put(node.number);
  put(node.integer);
  put(node.offset);
  put(node.reduced);
  put(node.trailing);
  put(node.indexed.step);
  put(node.indexed.count);
  put(node.indexed.wraps);
  for (const PartBound& bound : node.bounds) {
    put(bound.dim);
    put(bound.low);
    put(bound.high);
  }
  put(node.bounds.size());
  put(node.args.size());
  for (const NodeId arg : node.args) {
    put(arg);
  }
  for (const std::vector<Size>* sizes : {&node.sizes, &node.strides}) {
    for (const Size& size : *sizes) {
      const Size plain = folded(size);
      put(plain.hint);
      put(plain.expr);
    }
  }
  return key;
}

}  // namespace

std::vector<bool> escapingNodes(const TensorGraph& graph) {
  std::vector<bool> escapes(graph.nodes.size(), false);
  for (const NodeId id : graph.outputs) {
    if (id != ir::kNone) {
      escapes[id] = true;
    }
  }
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    const Node& node = graph.nodes[id];
    escapes[id] = escapes[id] || node.write;
    if (escapes[id] && node.kind == NodeKind::kView) {
      escapes[node.args[0]] = true;
    }
    // A result that may share memory with what the call was given.
    if (escapes[id] && node.kind == NodeKind::kResult && !node.fresh) {
      for (const NodeId arg : graph.nodes[node.args[0]].args) {
        escapes[arg] = true;
      }
    }
  }
  return escapes;
}

std::vector<bool> varyingNodes(const TensorGraph& graph) {
  std::vector<bool> varies(graph.nodes.size(), false);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    varies[id] = node.kind == NodeKind::kInput || node.write ||
                 (!node.metadataOnly &&
                  std::any_of(node.args.begin(), node.args.end(), [&](NodeId arg) { return varies[arg]; }));
  }
  return varies;
}

void dropCopies(TensorGraph& graph) {
  const std::vector<bool> escapes = escapingNodes(graph);
  std::vector<NodeId> to = everyNode(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    Node& node = graph.nodes[id];
    for (NodeId& arg : node.args) {
      // A constant has no memory, which views and calls need.
      if (isCore(node) || graph.nodes[to[arg]].kind != NodeKind::kConst) arg = to[arg];
    }
    if (node.kind == NodeKind::kPoint && node.op == Core::kCast && !escapes[id]) {
      const Node& from = graph.nodes[node.args[0]];
      if (from.elem == node.elem && from.sizes == node.sizes && from.strides == node.strides) {
        to[id] = node.args[0];
      }
    }
  }
  for (NodeId& output : graph.outputs) {
    output = output == ir::kNone ? output : to[output];
  }
}

void mergeEqualNodes(TensorGraph& graph) {
  const std::vector<bool> escapes = escapingNodes(graph);
  std::vector<NodeId> to = everyNode(graph);
  std::unordered_map<std::string, NodeId> seen;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    Node& node = graph.nodes[id];
    for (NodeId& arg : node.args) {
      arg = to[arg];
    }
    // A number that is spread over many elements is cheaper to spread twice than to store.
    const bool number = node.kind == NodeKind::kPoint && node.op == Core::kCast && !node.sizes.empty() &&
                        graph.nodes[node.args[0]].sizes.empty();
    const bool mergeable = !number && (node.kind == NodeKind::kConst || node.kind == NodeKind::kPoint ||
                                       node.kind == NodeKind::kReduce ||
                                       (node.kind == NodeKind::kView && node.instruction == ir::kNone));
    // A node that the outside sees stays, but may stand for later ones.
    if (mergeable) {
      const NodeId first = seen.try_emplace(keyOf(node), id).first->second;
      to[id] = escapes[id] ? id : first;
    }
  }
  redirect(graph, to);
}

void dropUnusedNodes(TensorGraph& graph) {
  std::vector<bool> used(graph.nodes.size(), false);
  for (const std::vector<NodeId>* ids : {&graph.inputs, &graph.outputs}) {
    for (const NodeId id : *ids) {
      if (id != ir::kNone) {
        used[id] = true;
      }
    }
  }
  std::vector<bool> mustRun(graph.nodes.size(), false);  // calls
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.kind == NodeKind::kResult && !node.fresh) {
      mustRun[node.args[0]] = true;
    }
    used[id] = used[id] || node.checked || node.mustRun;
  }
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    used[id] = used[id] || mustRun[id];
    for (const NodeId arg : graph.nodes[id].args) {
      used[arg] = used[arg] || used[id];
    }
  }
  std::vector<NodeId> to(graph.nodes.size(), ir::kNone);
  std::vector<Node> kept;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (used[id]) {
      to[id] = static_cast<NodeId>(kept.size());
      kept.push_back(std::move(graph.nodes[id]));
    }
  }
  graph.nodes = std::move(kept);
  redirect(graph, to);
  for (NodeId& input : graph.inputs) {
    input = to[input];
  }
}

}  // namespace kintsugi::passes
