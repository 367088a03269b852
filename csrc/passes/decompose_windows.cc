// Pooling and padding: reads of windows that may reach over the edge. Each place of a window is a view of the
// argument's memory; where it can lie outside, a part (Core::kPart) says for which elements it does not.
#include <algorithm>
#include <limits>

#include "passes/build_graph.h"
#include "passes/operator_rules.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

using D = Decomposer;

// A window becomes an operation for each of its places: up to 5 by 5. With a larger bound, code and the time
// to compile it grow; with a smaller one, more windows are calls, and nothing is fused with them.
constexpr size_t kMostPlaces = 25;

// What windows are along one dimension.
struct Window {
  size_t dim = 0;
  int64_t length = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
};

// A list with a number for each dimension, or one for all.
std::vector<int64_t> numbers(D& d, size_t operand, size_t count, int64_t otherwise) {
  if (d.isNone(operand)) {
    return std::vector<int64_t>(count, otherwise);
  }
  std::vector<int64_t> out = d.ints(operand);
  if (out.size() == 1) {
    out.resize(count, out[0]);
  }
  if (out.size() != count) {
    d.fail();
    out.resize(count, otherwise);
  }
  return out;
}

// Operands 1 to 3: length, stride, padding. The last `count` dimensions.
std::vector<Window> windowsOf(D& d, size_t rank, size_t count, std::optional<size_t> dilations) {
  const std::vector<int64_t> lengths = numbers(d, 1, count, 1);
  const bool ownStride = d.isNone(2) || d.ints(2).empty();
  const std::vector<int64_t> strides = ownStride ? lengths : numbers(d, 2, count, 1);
  const std::vector<int64_t> paddings = numbers(d, 3, count, 0);
  const std::vector<int64_t> dilation =
      dilations ? numbers(d, *dilations, count, 1) : std::vector<int64_t>(count, 1);
  std::vector<Window> out;
  for (size_t k = 0; k < count; ++k) {
    out.push_back({rank - count + k, lengths[k], strides[k], paddings[k], dilation[k]});
    if (lengths[k] <= 0 || strides[k] <= 0 || paddings[k] < 0 || dilation[k] <= 0) {
      d.fail();
    }
  }
  return out;
}

int64_t floorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// One place of the windows for all results. kNone without failure: it lies outside for all of them.
NodeId tap(D& d, NodeId x, const std::vector<Window>& windows, const std::vector<int64_t>& at,
           double outside) {
  const Node node = d.node(x);
  std::vector<Size> strides = node.strides;
  std::vector<PartBound> bounds;
  int64_t offset = 0;
  for (size_t k = 0; k < windows.size(); ++k) {
    const Window& w = windows[k];
    const int64_t size = node.sizes[w.dim].hint, count = d.sizes()[w.dim];
    const int64_t first = at[k] * w.dilation - w.padding;
    offset += first * node.strides[w.dim].hint;
    strides[w.dim] = node.strides[w.dim].hint * w.stride;
    const int64_t low = std::max<int64_t>(0, -floorDiv(first, w.stride));
    const int64_t high = std::min(count, floorDiv(size - 1 - first, w.stride) + 1);
    if (low >= high) {
      return ir::kNone;
    }
    if (low > 0 || high < count) {
      bounds.push_back({static_cast<uint32_t>(w.dim), low, high});
    }
  }
  const NodeId view = d.view(x, fixedSizes(d.sizes()), std::move(strides), offset);
  return bounds.empty() ? view : d.part(view, d.constant(outside, d.elem()), std::move(bounds));
}

// All places of the windows, combined.
NodeId pool(D& d, Core op, const std::vector<Window>& windows, double outside) {
  const NodeId x = d.tensor(0);
  size_t places = 1;
  for (const Window& w : windows) {
    places *= static_cast<size_t>(w.length);
  }
  if (d.failed() || places > kMostPlaces || !allFixed(d.node(x).sizes) || !allFixed(d.node(x).strides) ||
      d.node(x).elem != Elem::kF32 || d.elem() != Elem::kF32 || d.sizes().size() != d.node(x).sizes.size()) {
    return d.fail();
  }
  NodeId sum = ir::kNone;
  std::vector<int64_t> at(windows.size(), 0);
  for (size_t place = 0; place < places && !d.failed(); ++place) {
    const NodeId found = tap(d, x, windows, at, outside);
    if (!d.failed() && found != ir::kNone) {
      sum = sum == ir::kNone ? found : d.point(op, Elem::kF32, {sum, found});
    }
    for (size_t k = windows.size(); k-- > 0 && ++at[k] == windows[k].length;) {
      at[k] = 0;
    }
  }
  // One place alone is still a tensor of its own.
  return sum == ir::kNone ? d.fail() : places == 1 ? d.point(Core::kCast, Elem::kF32, {sum}) : sum;
}

// (self, kernel_size, stride, padding, dilation, ceil_mode)
NodeId maxPool(D& d, size_t count) {
  const size_t rank = d.sizes().size();
  if (rank < count) {
    return d.fail();
  }
  const auto windows = windowsOf(d, rank, count, 4);
  return d.failed() ? ir::kNone : pool(d, Core::kMax, windows, -std::numeric_limits<double>::infinity());
}

// (self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
NodeId avgPool(D& d, size_t count) {
  const size_t rank = d.sizes().size();
  const bool counts = d.isNone(5) || d.flag(5);
  if (rank < count || d.flag(4) || !d.isNone(6)) {
    return d.fail();
  }
  const auto windows = windowsOf(d, rank, count, std::nullopt);
  double area = 1;
  for (const Window& w : windows) {
    area *= static_cast<double>(w.length);
    if (w.padding != 0 && !counts) {
      return d.fail();  // each edge has an area of its own
    }
  }
  const NodeId sum = d.failed() ? ir::kNone : pool(d, Core::kAdd, windows, 0);
  return d.failed() ? sum : d.point(Core::kDiv, Elem::kF32, {sum, d.constant(area, Elem::kF32)});
}

// (self, output_size): the mean of all, or of windows of one size.
NodeId adaptiveAvgPool(D& d, size_t count) {
  const NodeId x = d.tensor(0);
  const size_t rank = d.sizes().size();
  if (d.failed() || rank < count || d.elem() != Elem::kF32 || !allFixed(d.node(x).sizes)) {
    return d.fail();
  }
  std::vector<Window> windows;
  double area = 1;
  bool all = true;
  for (size_t dim = rank - count; dim < rank; ++dim) {
    const int64_t size = d.node(x).sizes[dim].hint, wanted = d.sizes()[dim];
    if (wanted <= 0 || size % wanted != 0) {
      return d.fail();
    }
    windows.push_back({dim, size / wanted, size / wanted, 0, 1});
    area *= static_cast<double>(size / wanted);
    all = all && wanted == 1;
  }
  const NodeId sum = all ? d.reduce(Core::kReduceSum, x, count) : pool(d, Core::kAdd, windows, 0);
  return d.failed() ? sum : d.point(Core::kDiv, Elem::kF32, {sum, d.constant(area, Elem::kF32)});
}

NodeId padWith(D& d, double value) {
  const NodeId x = d.tensor(0);
  const std::vector<int64_t> pads = d.ints(1);
  if (d.failed() || d.elem() != Elem::kF32 || d.node(x).elem != Elem::kF32 || !allFixed(d.node(x).sizes) ||
      !allFixed(d.node(x).strides) || pads.size() % 2 != 0 || pads.size() / 2 > d.sizes().size()) {
    return d.fail();
  }
  const Node node = d.node(x);
  std::vector<PartBound> bounds;
  int64_t offset = 0;
  for (size_t k = 0; k < pads.size() / 2; ++k) {
    const size_t dim = d.sizes().size() - 1 - k;
    const int64_t before = pads[2 * k], after = pads[2 * k + 1];
    if (before < 0 || after < 0) {
      return d.fail();
    }
    offset -= before * node.strides[dim].hint;
    if (before > 0 || after > 0) {
      bounds.push_back({static_cast<uint32_t>(dim), before, before + node.sizes[dim].hint});
    }
  }
  const NodeId view = d.view(x, fixedSizes(d.sizes()), node.strides, offset);
  return bounds.empty() ? d.fail() : d.part(view, d.constant(value, Elem::kF32), std::move(bounds));
}

// An argument of a concatenation as a tensor of the result's size, which is right within the bounds only.
// What is computed cheaply is computed there again, so that it need not be stored.
class Shifted {
 public:
  Shifted(D& d, std::vector<Size> shape, PartBound bound) : d_(d), shape_(std::move(shape)), bound_(bound) {}

  NodeId run(NodeId id, NodeId otherwise) {
    const NodeId made = visit(id, otherwise);
    if (d_.failed() || !isComputed(id)) return made;
    // What is computed from constants alone (a fill) has no size there.
    if (d_.node(made).sizes != shape_) return leaf(d_.node(id), id, otherwise);
    // Computed on all elements: the others are chosen afterwards.
    return d_.part(made, otherwise, {bound_});
  }

 private:
  bool isComputed(NodeId id) const {
    const Node& node = d_.node(id);
    return node.kind == NodeKind::kPoint && coreInfo(node.op).cost == CoreCost::kCheap &&
           node.bounds.empty() && node.op != Core::kTake;
  }

  NodeId visit(NodeId id, NodeId otherwise) {
    // Of operations that are computed for each part of the join on all of its elements. More: the same work
    // is done as many times as there are parts. Fewer: results of short chains are stored to be loaded once.
    constexpr size_t kMost = 6;
    const Node node = d_.node(id);
    if (node.kind == NodeKind::kConst) {
      return id;
    }
    if (isComputed(id) && ++count_ <= kMost) {
      std::vector<NodeId> args;
      for (const NodeId arg : node.args) {
        args.push_back(visit(arg, d_.constant(0, Elem::kF32)));
      }
      return d_.failed()        ? ir::kNone
             : args.size() == 1 ? d_.point(node.op, node.elem, {args[0]})
             : args.size() == 2 ? d_.point(node.op, node.elem, {args[0], args[1]})
                                : d_.point(node.op, node.elem, {args[0], args[1], args[2]});
    }
    return leaf(node, id, otherwise);
  }

  NodeId leaf(const Node& node, NodeId id, NodeId otherwise) {
    if (node.elem != Elem::kF32 || node.sizes.size() > shape_.size() || !allFixed(node.strides)) {
      return d_.fail();
    }
    std::vector<Size> strides(shape_.size(), Size(0));
    const size_t shift = shape_.size() - node.sizes.size();
    for (size_t k = 0; k < node.sizes.size(); ++k) {
      strides[k + shift] = node.sizes[k] == 1 ? Size(0) : node.strides[k];
    }
    const int64_t offset = -bound_.low * strides[bound_.dim].hint;
    return d_.part(d_.view(id, shape_, std::move(strides), offset), otherwise, {bound_});
  }

  D& d_;
  const std::vector<Size> shape_;
  const PartBound bound_;
  size_t count_ = 0;
};

// (self, output_size, scale_factors): each element for so many neighbours along each of the last dimensions.
// Only powers of two: others ATen divides with rounding.
NodeId upsample(D& d, size_t count) {
  // A vector takes two elements then. A larger bound leaves it one; with a smaller one, more of them are
  // calls, and nothing is fused with them.
  const int64_t most = target().costs.mostRepeats;
  const NodeId x = d.tensor(0);
  const size_t rank = d.sizes().size();
  if (d.failed() || rank != count + 2 || d.node(x).sizes.size() != rank || d.node(x).elem != Elem::kF32 ||
      !allFixed(d.node(x).sizes) || d.node(x).strides != contiguousStrides(d.node(x).sizes)) {
    return d.fail();
  }
  const std::vector<double> scales = d.isNone(2) ? std::vector<double>() : d.floats(2);
  const Node node = d.node(x);
  std::vector<Size> sizes, strides;
  for (size_t dim = 0; dim < rank && !d.failed(); ++dim) {
    const int64_t from = node.sizes[dim].hint, to = d.sizes()[dim];
    const int64_t times = from > 0 ? to / from : 0;
    const bool power = times > 0 && times <= most && (times & (times - 1)) == 0 && times * from == to;
    const bool scaled = scales.empty() || dim < 2 || (scales.size() == count && scales[dim - 2] == times);
    if (!power || !scaled || (dim < 2 && times != 1)) {
      return d.fail();
    }
    sizes.push_back(from);
    strides.push_back(node.strides[dim]);
    if (dim >= 2) {
      sizes.push_back(times);
      strides.push_back(0);
    }
  }
  const NodeId seen = d.view(x, std::move(sizes), std::move(strides));
  return d.failed() ? seen : d.reshape(d.point(Core::kCast, Elem::kF32, {seen}), fixedSizes(d.sizes()));
}

}  // namespace

namespace decompositions {

// (self, pad, value)
NodeId constantPad(D& d) { return d.isNone(2) || d.number(2) ? padWith(d, d.number(2, 0)) : d.fail(); }

// (self, pad, mode, value)
NodeId pad(D& d) {
  const bool constant = d.isNone(2) || d.text(2) == "constant";
  return constant && (d.isNone(3) || d.number(3)) ? padWith(d, d.number(3, 0)) : d.fail();
}

// (tensors, dim)
NodeId concatenate(D& d) {
  // Each part is computed on all elements of the result, and one is chosen: the work grows with the square of
  // the parts. More of them are joined by kernels of their own (passes/decompose_joins.cc).
  constexpr size_t kMostParts = 4;
  const std::vector<NodeId> parts = d.tensors(0);
  const auto rank = static_cast<int64_t>(d.sizes().size());
  const auto named = static_cast<int64_t>(d.number(1, 0));
  const int64_t dim = named < 0 ? named + rank : named;
  if (d.failed() || parts.size() < 2 || parts.size() > kMostParts || d.elem() != Elem::kF32 || dim < 0 ||
      dim >= rank) {
    return d.fail();
  }
  NodeId sum = d.constant(0, Elem::kF32);
  int64_t low = 0;
  for (const NodeId part : parts) {
    const Node& node = d.node(part);
    if (static_cast<int64_t>(node.sizes.size()) != rank || !allFixed(node.sizes) || node.elem != Elem::kF32) {
      return d.fail();
    }
    const int64_t high = low + node.sizes[static_cast<size_t>(dim)].hint;
    sum = Shifted(d, fixedSizes(d.sizes()), {static_cast<uint32_t>(dim), low, high}).run(part, sum);
    low = high;
  }
  return sum;
}

NodeId maxPool1d(D& d) { return maxPool(d, 1); }

NodeId maxPool2d(D& d) { return maxPool(d, 2); }

NodeId avgPool2d(D& d) { return avgPool(d, 2); }

NodeId adaptiveAvgPool2d(D& d) { return adaptiveAvgPool(d, 2); }

NodeId upsampleNearest1d(D& d) { return upsample(d, 1); }

NodeId upsampleNearest2d(D& d) { return upsample(d, 2); }

}  // namespace decompositions

}  // namespace kintsugi::passes
