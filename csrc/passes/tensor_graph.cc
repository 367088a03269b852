#include "passes/tensor_graph.h"

#include <algorithm>
#include <limits>

#include "support/check.h"

namespace kintsugi::passes {

namespace {

constexpr CoreCost kCheap = CoreCost::kCheap;
constexpr CoreCost kCostly = CoreCost::kCostly;

constexpr CoreInfo kCoreInfos[] = {
#define KINTSUGI_CORE(name, text, arguments, cost) {text, arguments, cost},
#include "passes/core_ops.def"
};

struct ElemRow {  // the columns of elems.def
  int64_t size = 0;
  double largest = 0;
  int digits = 0;
  int exponents = 0;
  bool negative = false;
};

constexpr double kInfinite = std::numeric_limits<double>::infinity();

ElemRow rowOf(Elem elem) {
  switch (elem) {
#define KINTSUGI_ELEM(name, ...) \
  case Elem::k##name:            \
    return {__VA_ARGS__};
#include "passes/elems.def"
    case Elem::kOther:
      break;
  }
  return {0, kInfinite};
}

constexpr std::string_view kOtherName = "other";

}  // namespace

std::string callName(const ir::Trace& trace, const ir::Instruction& ins) {
  return ins.op == ir::Op::kAten ? trace.opNames[ins.opName] : std::string(ir::opInfo(ins.op).text);
}

const CoreInfo& coreInfo(Core op) { return kCoreInfos[static_cast<size_t>(op)]; }

std::string_view elemName(Elem elem) {
  return elem == Elem::kOther ? kOtherName : ir::dtypeName(static_cast<int64_t>(elem));
}
double largestIn(Elem elem) { return rowOf(elem).largest; }
int64_t elemSize(Elem elem) { return rowOf(elem).size; }

bool holdsAll(Elem from, Elem to) {
  if (from == Elem::kOther || to == Elem::kOther) return from == to;
  const ElemRow small = rowOf(from), large = rowOf(to);
  // The exponents of the smallest float reach beyond its digits, so an integer of as many digits fits.
  return small.digits <= large.digits && small.exponents <= large.exponents &&
         small.negative <= large.negative;
}

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

Elem elemOf(ir::DType dtype) {
  const auto elem = static_cast<Elem>(dtype);
  return elemSize(elem) != 0 ? elem : Elem::kOther;
}

Elem elemOf(std::string_view dtype) {
  const std::optional<ir::DType> known = ir::dtypeOf(dtype);
  return known ? elemOf(*known) : Elem::kOther;
}

MemoryPlace memoryOf(const TensorGraph& graph, NodeId id) {
  KINTSUGI_CHECK(id < graph.nodes.size(), "node ", id, " of ", graph.nodes.size());
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
