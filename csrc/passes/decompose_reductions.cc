// Reductions over neighbouring dimensions and what is made of them: softmax, layer and RMS norm; batch norm
// in evaluation, which is element by element.
#include <limits>

#include "passes/build_graph.h"
#include "passes/operator_rules.h"

namespace kintsugi::passes {

namespace {

using D = Decomposer;

// Neighbouring dimensions: how many, and how many are after them.
struct Dims {
  size_t count = 0;
  size_t trailing = 0;
};

// The dimensions that a list names, as runs of neighbours, the last first. Empty: they are not known.
std::vector<Dims> runsOf(D& d, std::vector<int64_t> dims, size_t rank) {
  std::vector<bool> named(rank);
  for (int64_t dim : dims) {
    dim += dim < 0 ? static_cast<int64_t>(rank) : 0;
    if (dim < 0 || dim >= static_cast<int64_t>(rank) || named[static_cast<size_t>(dim)]) {
      d.fail();
      return {};
    }
    named[static_cast<size_t>(dim)] = true;
  }
  std::vector<Dims> runs;
  for (size_t at = rank; at-- > 0;) {
    if (!named[at]) {
      continue;
    }
    if (at + 1 == rank || !named[at + 1]) {
      runs.push_back({0, rank - at - 1});
    }
    ++runs.back().count;
  }
  return runs;
}

// Of dimensions in the operand; without any, all.
std::vector<Dims> runsIn(D& d, size_t operand, size_t rank) {
  if (d.isNone(operand)) {
    return rank == 0 ? std::vector<Dims>() : std::vector<Dims>{{rank, 0}};
  }
  const std::vector<int64_t> dims = d.ints(operand);
  return dims.empty() && rank != 0 ? std::vector<Dims>{{rank, 0}} : runsOf(d, dims, rank);
}

// Nothing: it varies, and is no constant of the kernel.
std::optional<int64_t> rowLength(D& d, NodeId x, Dims dims) {
  Size length = 1;
  const std::vector<Size>& sizes = d.node(x).sizes;
  for (size_t k = 0; k < dims.count && k + dims.trailing < sizes.size(); ++k) {
    length *= sizes[sizes.size() - 1 - k - dims.trailing];
  }
  length = folded(length);
  return length.fixed() ? std::optional(length.hint) : std::nullopt;
}

NodeId reduce(D& d, Core op, NodeId x, Dims dims) { return d.reduce(op, x, dims.count, dims.trailing); }

NodeId divided(D& d, NodeId sum, double count) {
  return d.point(Core::kDiv, Elem::kF32, {sum, d.constant(count, Elem::kF32)});
}

NodeId mean(D& d, NodeId x, Dims dims) {
  const NodeId sum = reduce(d, Core::kReduceSum, x, dims);
  const std::optional<int64_t> length = d.failed() ? std::nullopt : rowLength(d, x, dims);
  return length ? divided(d, sum, static_cast<double>(*length)) : d.fail();
}

NodeId reduceRuns(D& d, Core op, NodeId x, const std::vector<Dims>& runs, bool divide) {
  double count = 1;
  for (const Dims& dims : runs) {
    const std::optional<int64_t> length = divide && !d.failed() ? rowLength(d, x, dims) : std::nullopt;
    count *= static_cast<double>(length.value_or(0));
    x = divide && !length ? d.fail() : reduce(d, op, x, dims);
  }
  if (runs.empty()) {
    return d.fail();
  }
  return divide ? divided(d, x, count) : x;
}

// What reductions compute with: floats that are no wider than f32.
NodeId reducible(D& d) {
  const NodeId self = d.tensor(0);
  const Elem from = d.failed() ? Elem::kOther : d.node(self).elem;
  return from == Elem::kF32 || isSmallFloat(from) ? d.as(0, Elem::kF32) : d.fail();
}

// A reduction by name: (self, dims, keepdim, dtype).
NodeId reduction(D& d, Core op, bool divide = false) {
  const NodeId x = reducible(d);
  if (d.failed() || !isFloat(d.elem()) || d.elem() == Elem::kF64) {
    return d.fail();
  }
  return d.cast(reduceRuns(d, op, x, runsIn(d, 1, d.node(x).sizes.size()), divide), d.elem());
}

// Of all elements: (self, dtype).
NodeId total(D& d, bool divide) {
  const NodeId x = reducible(d);
  if (d.failed() || !isFloat(d.elem()) || d.elem() == Elem::kF64 || d.node(x).sizes.empty()) {
    return d.fail();
  }
  return d.cast(reduceRuns(d, Core::kReduceSum, x, {{d.node(x).sizes.size(), 0}}, divide), d.elem());
}

// (self, dim, keepdim)
NodeId place(D& d, Core op) {
  const NodeId x = reducible(d);
  const std::vector<Dims> runs = d.failed() ? std::vector<Dims>() : runsIn(d, 1, d.node(x).sizes.size());
  if (runs.size() != 1) {
    return d.fail();
  }
  Size length = 1;
  for (const Size& size : d.node(x).sizes) {
    length *= size;
  }
  // Places are counted in 32 bits.
  constexpr int64_t kMost = int64_t{1} << 31;
  const bool fits =
      length.hint < kMost && (folded(length).fixed() || sizeTable().require(length, kMost, kLess));
  return fits ? reduce(d, op, x, runs.front()) : d.fail();
}

// Numbers that softmax takes: x as f32, and the dimension that it runs along.
NodeId softmaxInput(D& d, Dims& dims) {
  const NodeId x = d.as(0, Elem::kF32);
  if (d.failed() || d.elem() == Elem::kF64 || d.node(d.tensor(0)).elem == Elem::kF64) {
    return d.fail();
  }
  const std::vector<Dims> runs = runsOf(d, d.ints(1), d.node(x).sizes.size());
  if (runs.size() != 1) {
    return d.fail();
  }
  dims = runs.front();
  return x;
}

NodeId oneOverRoot(D& d, NodeId variance, double eps) {
  const NodeId shifted = d.point(Core::kAdd, Elem::kF32, {variance, d.constant(eps, Elem::kF32)});
  return d.point(Core::kDiv, Elem::kF32,
                 {d.constant(1, Elem::kF32), d.point(Core::kSqrt, Elem::kF32, {shifted})});
}

NodeId affine(D& d, NodeId x, size_t weight, size_t bias) {
  if (!d.isNone(weight)) {
    x = d.point(Core::kMul, Elem::kF32, {x, d.as(weight, Elem::kF32)});
  }
  if (!d.isNone(bias)) {
    x = d.point(Core::kAdd, Elem::kF32, {x, d.as(bias, Elem::kF32)});
  }
  return x;
}

}  // namespace

namespace decompositions {

NodeId sumOverDims(D& d) { return reduction(d, Core::kReduceSum); }

NodeId meanOverDims(D& d) { return reduction(d, Core::kReduceSum, true); }

NodeId maxOverDims(D& d) { return reduction(d, Core::kReduceMax); }

NodeId minOverDims(D& d) { return reduction(d, Core::kReduceMin); }

NodeId sumOfAll(D& d) { return total(d, false); }

NodeId meanOfAll(D& d) { return total(d, true); }

NodeId indexOfMax(D& d) { return place(d, Core::kReduceArgMax); }

NodeId indexOfMin(D& d) { return place(d, Core::kReduceArgMin); }

NodeId softmax(D& d) {
  Dims row;
  const NodeId x = softmaxInput(d, row);
  const NodeId most = reduce(d, Core::kReduceMax, x, row);
  const NodeId e = d.point(Core::kExp, Elem::kF32, {d.point(Core::kSub, Elem::kF32, {x, most})});
  const NodeId sum = reduce(d, Core::kReduceSum, e, row);
  return d.cast(d.point(Core::kDiv, Elem::kF32, {e, sum}), d.elem());
}

NodeId logSoftmax(D& d) {
  Dims row;
  const NodeId x = softmaxInput(d, row);
  const NodeId most = reduce(d, Core::kReduceMax, x, row);
  const NodeId shifted = d.point(Core::kSub, Elem::kF32, {x, most});
  const NodeId sum = reduce(d, Core::kReduceSum, d.point(Core::kExp, Elem::kF32, {shifted}), row);
  const NodeId log = d.point(Core::kLog, Elem::kF32, {sum});
  return d.cast(d.point(Core::kSub, Elem::kF32, {shifted, log}), d.elem());
}

// (input, normalized_shape, weight, bias, eps)
NodeId layerNorm(D& d) {
  if (d.elem() == Elem::kF64) {
    return d.fail();
  }
  const NodeId x = d.as(0, Elem::kF32);
  const Dims last{d.ints(1).size(), 0};
  const NodeId centred = d.point(Core::kSub, Elem::kF32, {x, mean(d, x, last)});
  const NodeId variance = mean(d, d.point(Core::kMul, Elem::kF32, {centred, centred}), last);
  const NodeId scaled =
      d.point(Core::kMul, Elem::kF32, {centred, oneOverRoot(d, variance, d.number(4, 1e-5))});
  return d.cast(affine(d, scaled, 2, 3), d.elem());
}

// (input, normalized_shape, weight, eps)
NodeId rmsNorm(D& d) {
  if (d.elem() != Elem::kF32) {
    return d.fail();  // it is unknown where ATen rounds intermediate results
  }
  const NodeId x = d.as(0, Elem::kF32);
  const Dims last{d.ints(1).size(), 0};
  const NodeId square = mean(d, d.point(Core::kMul, Elem::kF32, {x, x}), last);
  const double eps = d.number(3, std::numeric_limits<float>::epsilon());
  const NodeId scaled = d.point(Core::kMul, Elem::kF32, {x, oneOverRoot(d, square, eps)});
  return affine(d, scaled, 2, 99);
}

// (input, groups, weight, bias, eps, cudnn). As in ATen, a factor and a summand for each channel.
NodeId groupNorm(D& d) {
  const NodeId x = d.as(0, Elem::kF32);
  const std::optional<double> groups = d.number(1);
  if (d.failed() || d.elem() != Elem::kF32 || !groups || d.sizes().size() < 2 || !allFixed(d.node(x).sizes)) {
    return d.fail();
  }
  const auto count = static_cast<int64_t>(*groups);
  const int64_t channels = d.sizes()[1];
  if (count <= 0 || channels % count != 0) {
    return d.fail();
  }
  const Size inner = elementCount(std::vector<Size>(d.node(x).sizes.begin() + 2, d.node(x).sizes.end()));
  const Dims row{2, 0};
  const NodeId grouped = d.reshape(x, {d.node(x).sizes[0], count, channels / count, inner});
  const NodeId average = mean(d, grouped, row);
  const NodeId centred = d.point(Core::kSub, Elem::kF32, {grouped, average});
  const NodeId variance = mean(d, d.point(Core::kMul, Elem::kF32, {centred, centred}), row);
  NodeId factor = oneOverRoot(d, variance, d.number(4, 1e-5));
  auto perChannel = [&](size_t k) {
    const NodeId vector = d.as(k, Elem::kF32);
    return d.reshape(vector, {Size(1), Size(count), Size(channels / count), Size(1)});
  };
  if (!d.isNone(2)) {
    factor = d.point(Core::kMul, Elem::kF32, {factor, perChannel(2)});
  }
  const NodeId shift = d.point(Core::kMul, Elem::kF32, {factor, average});
  const NodeId summand = d.isNone(3) ? d.point(Core::kNeg, Elem::kF32, {shift})
                                     : d.point(Core::kSub, Elem::kF32, {perChannel(3), shift});
  return d.point(Core::kAdd, Elem::kF32, {d.point(Core::kMul, Elem::kF32, {grouped, factor}), summand});
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn), the statistics given. As
// in ATen, a factor and a summand for each channel, so that infinities (of a variance of 0) are added as ATen
// adds them.
NodeId batchNorm(D& d) {
  if (d.flag(5) || d.isNone(3) || d.isNone(4) || d.elem() != Elem::kF32 || d.sizes().size() < 2 ||
      d.strict()) {
    return d.fail();
  }
  auto point = [&](Core op, std::initializer_list<NodeId> inputs) { return d.point(op, Elem::kF32, inputs); };
  const size_t rank = d.sizes().size();
  auto channel = [&](size_t k) { return d.broadcastDim(d.as(k, Elem::kF32), 1, rank); };
  NodeId factor = oneOverRoot(d, channel(4), d.number(7, 1e-5));
  if (!d.isNone(1)) {
    factor = point(Core::kMul, {factor, channel(1)});
  }
  const NodeId shift = point(Core::kNeg, {point(Core::kMul, {channel(3), factor})});
  const NodeId summand = d.isNone(2) ? shift : point(Core::kAdd, {channel(2), shift});
  return point(Core::kFma, {d.as(0, Elem::kF32), factor, summand});
}

}  // namespace decompositions

}  // namespace kintsugi::passes
