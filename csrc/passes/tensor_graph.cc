#include "passes/tensor_graph.h"

#include <algorithm>
#include <array>
#include <limits>

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

}  // namespace

std::string callName(const ir::Trace& trace, const ir::Instruction& ins) {
  return ins.op == ir::Op::kAten ? trace.opNames[ins.opName] : std::string(ir::opInfo(ins.op).text);
}

const CoreInfo& coreInfo(Core op) { return kCoreInfos[static_cast<size_t>(op)]; }

std::string_view elemName(Elem elem) { return kElems[static_cast<size_t>(elem)].name; }
double largestIn(Elem elem) { return kElems[static_cast<size_t>(elem)].largest; }
int64_t elemSize(Elem elem) { return kElems[static_cast<size_t>(elem)].size; }

bool computes(Core op, Elem elem) {
  if (isTranscendental(op)) {
    return elem == Elem::kF32 || isSmallFloat(elem);
  }
  if (isReduce(op) || op == Core::kPart) {
    return elem == Elem::kF32;
  }
  const bool needsFloat = op == Core::kDiv || op == Core::kFma || op == Core::kSqrt || op == Core::kFloor ||
                          op == Core::kCeil || op == Core::kTrunc;
  return elem != Elem::kOther && (!needsFloat || isFloat(elem));
}

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

}  // namespace kintsugi::passes
