// Reductions over the last dimensions and what is made of them: softmax, layer and RMS norm; batch norm in
// evaluation, which is element by element.
#include <limits>

#include "passes/build_graph.h"

namespace kintsugi::passes {

namespace {

using D = Decomposer;

// How many of the last dimensions a list of dimensions names; 0: others, or none.
size_t lastDims(D& d, std::vector<int64_t> dims, size_t rank) {
  std::vector<bool> named(rank);
  for (int64_t dim : dims) {
    dim += dim < 0 ? static_cast<int64_t>(rank) : 0;
    if (dim < 0 || dim >= static_cast<int64_t>(rank) || named[static_cast<size_t>(dim)]) {
      d.fail();
      return 0;
    }
    named[static_cast<size_t>(dim)] = true;
  }
  for (size_t k = 0; k < dims.size(); ++k) {
    if (!named[rank - 1 - k]) {
      d.fail();
      return 0;
    }
  }
  return dims.size();
}

// Nothing: it varies, and is no constant of the kernel.
std::optional<int64_t> rowLength(D& d, NodeId x, size_t last) {
  Size length = 1;
  const std::vector<Size>& sizes = d.node(x).sizes;
  for (size_t k = 0; k < last && k < sizes.size(); ++k) {
    length *= sizes[sizes.size() - 1 - k];
  }
  length = settled(length);
  return length.fixed() ? std::optional(length.hint) : std::nullopt;
}

NodeId mean(D& d, NodeId x, size_t last) {
  const NodeId sum = d.reduce(Core::kReduceSum, x, last);
  const std::optional<int64_t> length = d.failed() ? std::nullopt : rowLength(d, x, last);
  if (!length) {
    return d.fail();
  }
  return d.point(Core::kMul, Elem::kF32, {sum, d.constant(1.0 / static_cast<double>(*length), Elem::kF32)});
}

// A reduction by name: (self, dims, keepdim, dtype).
template <Core op, bool divide>
NodeId reduction(D& d) {
  const NodeId self = d.tensor(0);
  const Elem from = d.failed() ? Elem::kOther : d.node(self).elem;
  if (d.failed() || !(from == Elem::kF32 || isSmallFloat(from)) || !isFloat(d.elem())) {
    return d.fail();
  }
  const NodeId x = d.as(0, Elem::kF32);
  const size_t last = d.failed() ? 0 : lastDims(d, d.ints(1), d.node(x).sizes.size());
  if (d.failed() || last == 0 || d.elem() == Elem::kF64) {
    return d.fail();
  }
  return d.cast(divide ? mean(d, x, last) : d.reduce(op, x, last), d.elem());
}

// Numbers that softmax takes: x as f32, along the last dimension.
NodeId softmaxInput(D& d) {
  const NodeId x = d.as(0, Elem::kF32);
  if (d.failed() || d.elem() == Elem::kF64 || d.node(d.tensor(0)).elem == Elem::kF64) {
    return d.fail();
  }
  return lastDims(d, d.ints(1), d.node(x).sizes.size()) == 1 ? x : d.fail();
}

NodeId softmax(D& d) {
  const NodeId x = softmaxInput(d);
  const NodeId most = d.reduce(Core::kReduceMax, x, 1);
  const NodeId e = d.point(Core::kExp, Elem::kF32, {d.point(Core::kSub, Elem::kF32, {x, most})});
  const NodeId sum = d.reduce(Core::kReduceSum, e, 1);
  return d.cast(d.point(Core::kDiv, Elem::kF32, {e, sum}), d.elem());
}

NodeId logSoftmax(D& d) {
  const NodeId x = softmaxInput(d);
  const NodeId most = d.reduce(Core::kReduceMax, x, 1);
  const NodeId shifted = d.point(Core::kSub, Elem::kF32, {x, most});
  const NodeId sum = d.reduce(Core::kReduceSum, d.point(Core::kExp, Elem::kF32, {shifted}), 1);
  const NodeId log = d.point(Core::kLog, Elem::kF32, {sum});
  return d.cast(d.point(Core::kSub, Elem::kF32, {shifted, log}), d.elem());
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

// (input, normalized_shape, weight, bias, eps)
NodeId layerNorm(D& d) {
  if (d.elem() == Elem::kF64) {
    return d.fail();
  }
  const NodeId x = d.as(0, Elem::kF32);
  const size_t last = d.ints(1).size();
  const NodeId centred = d.point(Core::kSub, Elem::kF32, {x, mean(d, x, last)});
  const NodeId variance = mean(d, d.point(Core::kMul, Elem::kF32, {centred, centred}), last);
  const NodeId scaled =
      d.point(Core::kMul, Elem::kF32, {centred, oneOverRoot(d, variance, d.number(4, 1e-5))});
  return d.cast(affine(d, scaled, 2, 3), d.elem());
}

// (input, normalized_shape, weight, eps)
NodeId rmsNorm(D& d) {
  if (d.elem() != Elem::kF32) {
    return d.fail();  // where ATen rounds in between is not settled
  }
  const NodeId x = d.as(0, Elem::kF32);
  const size_t last = d.ints(1).size();
  const NodeId square = mean(d, d.point(Core::kMul, Elem::kF32, {x, x}), last);
  const double eps = d.number(3, std::numeric_limits<float>::epsilon());
  const NodeId scaled = d.point(Core::kMul, Elem::kF32, {x, oneOverRoot(d, square, eps)});
  return affine(d, scaled, 2, 99);
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn), the statistics given.
NodeId batchNorm(D& d) {
  if (d.flag(5) || d.isNone(3) || d.isNone(4) || d.elem() != Elem::kF32 || d.sizes().size() < 2 ||
      d.strict()) {
    return d.fail();
  }
  const size_t rank = d.sizes().size();
  auto channel = [&](size_t k) { return d.broadcastDim(d.as(k, Elem::kF32), 1, rank); };
  const NodeId x = d.as(0, Elem::kF32);
  const NodeId centred = d.point(Core::kSub, Elem::kF32, {x, channel(3)});
  NodeId y = d.point(Core::kMul, Elem::kF32, {centred, oneOverRoot(d, channel(4), d.number(7, 1e-5))});
  if (!d.isNone(1)) {
    y = d.point(Core::kMul, Elem::kF32, {y, channel(1)});
  }
  return d.isNone(2) ? y : d.point(Core::kAdd, Elem::kF32, {y, channel(2)});
}

constexpr Decomposition kRows[] = {
    {"aten.sum.dim_IntList", false, reduction<Core::kReduceSum, false>},
    {"aten.mean.dim", false, reduction<Core::kReduceSum, true>},
    {"aten.amax.default", false, reduction<Core::kReduceMax, false>},
    {"aten.amin.default", false, reduction<Core::kReduceMin, false>},
    {"aten.softmax.int", false, softmax},
    {"aten._softmax.default", false, softmax},
    {"aten.log_softmax.int", false, logSoftmax},
    {"aten.layer_norm.default", false, layerNorm},
    {"aten.rms_norm.default", false, rmsNorm},
    {"aten.batch_norm.default", false, batchNorm},
};

}  // namespace

std::span<const Decomposition> reductionDecompositions() { return kRows; }

}  // namespace kintsugi::passes
