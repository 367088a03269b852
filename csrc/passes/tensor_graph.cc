#include "passes/tensor_graph.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ir/text.h"

namespace kintsugi::passes {

namespace {

constexpr CoreCost kCheap = CoreCost::kCheap;
constexpr CoreCost kCostly = CoreCost::kCostly;

constexpr CoreInfo kCoreInfos[] = {
#define KINTSUGI_CORE(name, text, arguments, cost) {text, arguments, cost},
#include "passes/core_ops.def"
};

struct ElemRow {
  std::string_view name;
  int64_t size;
  double largest = std::numeric_limits<double>::infinity();  // see largestIn()
};

constexpr auto kElems = std::to_array<ElemRow>({
    {"bool", 1},
    {"u8", 1, 255},
    {"i8", 1, 127},
    {"i16", 2, 32767},
    {"i32", 4, 2147483647},
    {"i64", 8},
    {"f16", 2, 65504},
    {"bf16", 2, 0x1.fep127},
    {"f32", 4, std::numeric_limits<float>::max()},
    {"f64", 8},
    {"other", 0},
});

void appendSizes(std::string& out, const std::vector<Size>& sizes) {
  out += '[';
  for (size_t i = 0; i < sizes.size(); ++i) {
    out += (i == 0 ? "" : ",") + textOf(sizes[i]);
  }
  out += ']';
}

std::string headOf(const Node& node, const ir::Trace& trace) {
  switch (node.kind) {
    case NodeKind::kInput:
      return "input";
    case NodeKind::kConst: {
      std::string out = "const ";
      isFloat(node.elem) ? ir::appendFloat(out, node.number) : ir::appendInt(out, node.integer);
      return out;
    }
    case NodeKind::kPoint:
    case NodeKind::kReduce:
      return std::string(coreInfo(node.op).text);
    case NodeKind::kProduct:
      return node.byRows ? "product.rows" : "product";
    case NodeKind::kAttention:
      return "attention";
    case NodeKind::kView:
      return "view";
    case NodeKind::kJoin:
      return (node.stacked ? "join.stacked " : "join ") + std::to_string(node.dim);
    case NodeKind::kCall:
      return (node.product ? "product " : "call ") + callName(trace, trace.code[node.instruction]);
    case NodeKind::kResult:
      return "result " + std::to_string(node.result);
  }
  return "?";
}

}  // namespace

std::string callName(const ir::Trace& trace, const ir::Instruction& ins) {
  return ins.op == ir::Op::kAten ? trace.opNames[ins.opName] : std::string(ir::opInfo(ins.op).text);
}

const CoreInfo& coreInfo(Core op) { return kCoreInfos[static_cast<size_t>(op)]; }

std::string_view elemName(Elem elem) { return kElems[static_cast<size_t>(elem)].name; }
double largestIn(Elem elem) { return kElems[static_cast<size_t>(elem)].largest; }
int64_t elemSize(Elem elem) { return kElems[static_cast<size_t>(elem)].size; }

Elem elemOf(std::string_view dtype) {
  for (size_t i = 0; i < kElems.size(); ++i) {
    if (kElems[i].name == dtype) {
      return static_cast<Elem>(i);
    }
  }
  return Elem::kOther;
}

MemoryPlace memoryOf(const TensorGraph& graph, NodeId id) {
  MemoryPlace place{id, 0};
  while (graph.nodes[place.base].kind == NodeKind::kView) {
    place.offset += graph.nodes[place.base].offset;
    place.base = graph.nodes[place.base].args[0];
  }
  return place;
}

MemoryPlace tensorOf(const TensorGraph& graph, NodeId id) {
  MemoryPlace place = memoryOf(graph, id);
  while (graph.nodes[place.base].home != ir::kNone) {
    place.offset += graph.nodes[place.base].offset;
    place.base = graph.nodes[place.base].home;
  }
  return place;
}

std::vector<Size> contiguousStrides(const std::vector<Size>& sizes) {
  std::vector<Size> strides(sizes.size());
  Size step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= sizes[d] == 0 ? Size(1) : sizes[d];
  }
  return strides;
}

bool isContiguous(const std::vector<Size>& sizes, const std::vector<Size>& strides) {
  if (elementCount(sizes) == 0) {
    return true;
  }
  Size step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != step) {
      return false;
    }
    step *= sizes[d];
  }
  return true;
}

Size elementCount(const std::vector<Size>& sizes) {
  Size count = 1;
  for (const Size& size : sizes) {
    count *= size;
  }
  return count;
}

bool isDense(const std::vector<Size>& sizes, const std::vector<Size>& strides) {
  if (elementCount(sizes) == 0) {
    return true;
  }
  std::vector<std::pair<Size, Size>> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) {
      dims.emplace_back(strides[d], sizes[d]);
    }
  }
  std::sort(dims.begin(), dims.end(),
            [](const auto& a, const auto& b) { return a.first.hint < b.first.hint; });
  Size step = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != step) {
      return false;
    }
    step *= size;
  }
  return true;
}

std::string print(const TensorGraph& graph, const ir::Trace& trace) {
  std::string out;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    out += "%" + std::to_string(id) + " = " + headOf(node, trace);
    if (!node.args.empty() || node.kind == NodeKind::kCall) {
      out += '(';
      for (size_t k = 0; k < node.args.size(); ++k) {
        out += (k == 0 ? "%" : ", %") + std::to_string(node.args[k]);
      }
      out += ')';
    }
    if (node.kind != NodeKind::kCall) {
      out += " " + std::string(elemName(node.elem));
      if (node.kind != NodeKind::kConst) {
        appendSizes(out, node.sizes);
        if (!isContiguous(node.sizes, node.strides)) {
          out += " strides=";
          appendSizes(out, node.strides);
        }
      }
    }
    if (node.kind == NodeKind::kView && node.offset != 0) {
      out += " offset=" + std::to_string(node.offset);
    }
    if (node.home != ir::kNone) {
      out += " in %" + std::to_string(node.home) + " at " + std::to_string(node.offset);
    }
    for (const PartBound& bound : node.bounds) {
      out += " dim" + std::to_string(bound.dim) + "=" + std::to_string(bound.low) + ".." +
             std::to_string(bound.high);
    }
    if (node.kind == NodeKind::kReduce) {
      out += " last=" + std::to_string(node.reduced);
      out += node.behind != 0 ? " behind=" + std::to_string(node.behind) : "";
    }
    out += '\n';
  }
  out += "outputs";
  for (const NodeId id : graph.outputs) {
    out += id == ir::kNone ? " none" : " %" + std::to_string(id);
  }
  return out + "\n";
}

}  // namespace kintsugi::passes
