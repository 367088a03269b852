#include "passes/tensor_graph.h"

#include <algorithm>
#include <array>
#include <numeric>

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
};

constexpr auto kElems = std::to_array<ElemRow>({
    {"bool", 1},
    {"u8", 1},
    {"i32", 4},
    {"i64", 8},
    {"f16", 2},
    {"bf16", 2},
    {"f32", 4},
    {"f64", 8},
    {"other", 0},
});

void appendInts(std::string& out, const std::vector<int64_t>& numbers) {
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    out += i == 0 ? "" : ",";
    ir::appendInt(out, numbers[i]);
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
    case NodeKind::kView:
      return "view";
    case NodeKind::kCall:
      return "call " + trace.opNames[trace.code[node.instruction].opName];
    case NodeKind::kResult:
      return "result " + std::to_string(node.result);
  }
  return "?";
}

}  // namespace

const CoreInfo& coreInfo(Core op) { return kCoreInfos[static_cast<size_t>(op)]; }

std::string_view elemName(Elem elem) { return kElems[static_cast<size_t>(elem)].name; }
int64_t elemSize(Elem elem) { return kElems[static_cast<size_t>(elem)].size; }

Elem elemOf(std::string_view dtype) {
  for (size_t i = 0; i < kElems.size(); ++i) {
    if (kElems[i].name == dtype) {
      return static_cast<Elem>(i);
    }
  }
  return Elem::kOther;
}

std::vector<int64_t> contiguousStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<int64_t>(1, sizes[d]);
  }
  return strides;
}

bool isContiguous(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  if (elementCount(sizes) == 0) {
    return true;
  }
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != step) {
      return false;
    }
    step *= sizes[d];
  }
  return true;
}

int64_t elementCount(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool isDense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  if (elementCount(sizes) == 0) {
    return true;
  }
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) {
      dims.emplace_back(strides[d], sizes[d]);
    }
  }
  std::sort(dims.begin(), dims.end());
  int64_t step = 1;
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
        appendInts(out, node.sizes);
        if (!isContiguous(node.sizes, node.strides)) {
          out += " strides=";
          appendInts(out, node.strides);
        }
      }
    }
    if (node.kind == NodeKind::kView && node.offset != 0) {
      out += " offset=" + std::to_string(node.offset);
    }
    if (node.kind == NodeKind::kReduce) {
      out += " last=" + std::to_string(node.reduced);
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
