#include "ir/printer.h"
#include "passes/graph_text.h"
#include "passes/kernel_text.h"
#include "passes/node_flags.h"
#include "passes/size_text.h"

namespace kintsugi::passes {

namespace {

std::string named(NodeId id) { return id == ir::kNone ? "none" : "%" + std::to_string(id); }

void appendIds(std::string& out, const std::vector<NodeId>& ids) {
  for (size_t k = 0; k < ids.size(); ++k) {
    out += (k == 0 ? " " : ", ") + named(ids[k]);
  }
}

void appendHead(std::string& out, const Node& node, const ir::Trace& segment) {
  switch (node.kind) {
    case NodeKind::kInput:
      out += "input";
      return;
    case NodeKind::kConst:
      out += "const ";
      isFloat(node.elem) ? ir::appendFloat(out, node.number) : ir::appendInt(out, node.integer);
      return;
    case NodeKind::kPoint:
    case NodeKind::kReduce:
      out += coreInfo(node.op).text;
      return;
    case NodeKind::kProduct:
      out += node.byRows ? "product.rows" : "product";
      return;
    case NodeKind::kAttention:
      out += "attention";
      return;
    case NodeKind::kView:
      out += "view";
      return;
    case NodeKind::kJoin:
      out += (node.stacked ? "join.stacked " : "join ") + std::to_string(node.dim);
      return;
    case NodeKind::kCall:
      out += "call ";
      ir::appendName(out, callName(segment, segment.code[node.instruction]), ir::isWordChar);
      return;
    case NodeKind::kResult:
      out += "result " + std::to_string(node.result);
      return;
  }
}

// `f32[2,16] strides=[1,2]`; calls have no type, but may have a size.
void appendType(std::string& out, const Node& node) {
  if (node.kind == NodeKind::kCall) {
    if (!node.sizes.empty()) {
      appendSizes(out += " sizes=", node.sizes);
    }
    return;
  }
  appendElem(out += " ", node.elem);
  if (node.kind == NodeKind::kConst) {
    return;
  }
  appendSizes(out, node.sizes);
  if (node.strides != contiguousStrides(node.sizes)) {
    appendSizes(out += " strides=", node.strides);
  }
}

void appendAttributes(std::string& out, const Node& node) {
  const auto put = [&out](std::string_view name, int64_t number, bool is) {
    out += is ? " " + std::string(name) + "=" + std::to_string(number) : "";
  };
  put("last", node.reduced, node.kind == NodeKind::kReduce || node.reduced != 0);
  put("trailing", node.trailing, node.trailing != 0);
  put("offset", node.offset, node.offset != 0);
  if (node.home != ir::kNone) {
    out += " in " + named(node.home);
  }
  appendPlaces(out, node.bounds, node.indexed);
  for (const NodeFlag& row : kNodeFlags) {
    out += node.*row.flag ? " " + std::string(row.name) : "";
  }
  if (node.largest != 0) {
    ir::appendFloat(out += " largest=", node.largest);
  }
  put("at", node.instruction, node.instruction != ir::kNone);
  put("result", node.result, node.result != 0 && node.kind != NodeKind::kResult);
  put("value", node.value, node.value != ir::kNone);
}

void appendNode(std::string& out, const Node& node, const ir::Trace& segment) {
  appendHead(out, node, segment);
  for (size_t k = 0; k < node.args.size(); ++k) {
    out += (k == 0 ? "(" : ", ") + named(node.args[k]);
  }
  out += node.args.empty() ? "" : ")";
  appendType(out, node);
  appendAttributes(out, node);
  if (node.attention != nullptr) {
    appendKernel(out += " ", *node.attention, "  ");
  }
}

}  // namespace

std::string print(const TensorGraph& graph, const ir::Trace& segment) {
  std::string out = "graph {\n";
  appendSizeRows(out, sizeTable(), "  ");
  appendIds(out += "  inputs", graph.inputs);
  out += '\n';
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    appendNode(out += "  " + named(id) + " = ", graph.nodes[id], segment);
    out += '\n';
  }
  appendIds(out += "  outputs", graph.outputs);
  for (const Write& write : graph.writes) {
    out += "\n  write input " + std::to_string(write.input) + " ";
    appendElem(out, write.elem);
    appendSizes(out, write.sizes);
    appendSizes(out += " strides=", write.strides);
    out += write.offset != 0 ? " offset=" + std::to_string(write.offset) : "";
  }
  for (const auto& [input, times] : graph.written) {
    out += "\n  written input " + std::to_string(input) + " times=" + std::to_string(times);
  }
  out += graph.instructions != 0 ? "\n  instructions " + std::to_string(graph.instructions) : "";
  return out + "\n}\n";
}

std::string print(const GraphDocument& document) {
  return (document.segment.code.empty() ? "" : ir::print(document.segment)) +
         print(document.graph, document.segment);
}

}  // namespace kintsugi::passes
