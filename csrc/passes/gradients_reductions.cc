// Derivatives of sums, means, softmax and normalizations.
#include <algorithm>
#include <limits>

#include "passes/gradient_builder.h"

namespace kintsugi::passes {

namespace {

using B = GradientBuilder;
using V = B::V;
using ops::Operator;

using Dims = std::vector<int64_t>;

B::Operand val(V value) { return B::val(value); }

B::Operand num(double value) { return B::num(value); }

// The gradient of a reduction, spread over what was reduced.
V spread(B& b, V g, const Dims& dims, V x) {
  Dims kept = b.sizes(x);
  for (const int64_t dim : dims) {
    kept[static_cast<size_t>(dim)] = 1;
  }
  return b.expand(b.reshape(g, kept), b.sizes(x));
}

Dims allDims(B& b, V x) {
  Dims dims(b.rank(x));
  for (size_t d = 0; d < dims.size(); ++d) {
    dims[d] = static_cast<int64_t>(d);
  }
  return dims;
}

Dims dimsAt(B& b, size_t k, V x) {
  if (b.isNone(k) || b.ints(k).empty()) {
    return allDims(b, x);
  }
  Dims dims;
  for (const int64_t dim : b.ints(k)) {
    dims.push_back(static_cast<int64_t>(b.dimOf(dim, x)));
  }
  return b.rank(x) == 0 ? Dims() : dims;
}

double elementsOf(B& b, V x, const Dims& dims) {
  double count = 1;
  for (const int64_t dim : dims) {
    count *= static_cast<double>(b.sizes(x)[static_cast<size_t>(dim)]);
  }
  return count;
}

bool reduction(B& b, const Dims& dims, bool mean) {
  const V x = b.tensor(0);
  V g = b.gradient();
  if (mean) {
    const double count = elementsOf(b, x, dims);
    if (count == 0) {
      return false;
    }
    g = b.div(val(g), num(count));
  }
  b.accumulateGradient(0, spread(b, g, dims, x));
  return true;
}

bool alongLast(B& b, V x) { return b.rank(x) > 0 && b.dimOf(b.integer(1), x) + 1 == b.rank(x); }

Dims lastDims(B& b, V x, size_t count) {
  Dims dims;
  for (size_t d = b.rank(x) - count; d < b.rank(x); ++d) {
    dims.push_back(static_cast<int64_t>(d));
  }
  return dims;
}

// What both norms share: y = scaled * weight + bias, with scaled = centred * factor. `weighed`: what the
// weight's gradient takes for it.
void normGradients(B& b, V scaled, V weighed, V factor, const Dims& dims, bool centred, size_t weight,
                   size_t bias) {
  const V g = b.cast(b.gradient(), ir::DType::kF32);
  if (b.needsGradient(bias)) {
    b.accumulateGradient(bias, g);
  }
  if (b.needsGradient(weight)) {
    b.accumulateGradient(weight, b.mul(val(g), val(weighed)));
  }
  if (!b.needsGradient(0)) {
    return;
  }
  const V w = b.isNone(weight) ? ir::kNone : b.cast(b.tensor(weight), ir::DType::kF32);
  const V weighted = w == ir::kNone ? g : b.mul(val(g), val(w));
  const V along = b.sum(b.mul(val(weighted), val(scaled)), dims, true, true);
  V inner = b.sub(val(weighted), val(b.mul(val(scaled), val(along))));
  if (centred) {
    inner = b.sub(val(inner), val(b.sum(weighted, dims, true, true)));
  }
  b.accumulateGradient(0, b.mul(val(factor), val(inner)));
}

}  // namespace

namespace gradients {

bool sumDims(B& b) { return reduction(b, dimsAt(b, 1, b.tensor(0)), false); }

bool meanDims(B& b) { return reduction(b, dimsAt(b, 1, b.tensor(0)), true); }

bool sumAll(B& b) { return reduction(b, allDims(b, b.tensor(0)), false); }

bool meanAll(B& b) { return reduction(b, allDims(b, b.tensor(0)), true); }

bool softmax(B& b) {
  const V r = b.result(), g = b.gradient();
  if (!alongLast(b, r)) {
    return false;
  }
  const V product = b.mul(val(g), val(r));
  const V total = b.sum(product, {static_cast<int64_t>(b.rank(r)) - 1}, true);
  b.accumulateGradient(0, b.sub(val(product), val(b.mul(val(r), val(total)))));
  return true;
}

bool logSoftmax(B& b) {
  const V r = b.result(), g = b.gradient();
  if (!alongLast(b, r)) {
    return false;
  }
  const V total = b.sum(g, {static_cast<int64_t>(b.rank(r)) - 1}, true);
  const V chances = b.point(Operator::kExp, {val(r)});
  b.accumulateGradient(0, b.sub(val(g), val(b.mul(val(chances), val(total)))));
  return true;
}

// (input, normalized_shape, weight, bias, eps): the statistics are those of the forward, written as the
// decomposition of the norm makes them, so that they are computed once.
bool layerNorm(B& b) {
  const V input = b.tensor(0);
  if (b.dtype(input) == ir::DType::kF64 || b.ints(1).empty()) {
    return false;
  }
  const Dims dims = lastDims(b, input, b.ints(1).size());
  V mean = ir::kNone, factor = ir::kNone;
  {
    const B::InForward scope(b);
    const V x = b.cast(input, ir::DType::kF32);
    mean = b.sum(x, dims, true, true);
    const V centred = b.sub(val(x), val(mean));
    const V variance = b.sum(b.mul(val(centred), val(centred)), dims, true, true);
    factor = b.point(Operator::kRsqrt, {val(b.add(val(variance), num(b.number(4))))});
  }
  const V scaled = b.mul(val(b.sub(val(b.cast(input, ir::DType::kF32)), val(mean))), val(factor));
  normGradients(b, scaled, scaled, factor, dims, true, 2, 3);
  return true;
}

// (input, normalized_shape, weight, eps)
bool rmsNorm(B& b) {
  const V input = b.tensor(0);
  if (b.dtype(b.result()) != ir::DType::kF32 || b.dtype(input) != ir::DType::kF32 || b.ints(1).empty()) {
    return false;
  }
  const Dims dims = lastDims(b, input, b.ints(1).size());
  const double eps = b.isNone(3) ? std::numeric_limits<float>::epsilon() : b.number(3);
  V factor = ir::kNone, product = ir::kNone;
  {
    const B::InForward scope(b);
    const V square = b.sum(b.mul(val(input), val(input)), dims, true, true);
    factor = b.point(Operator::kRsqrt, {val(b.add(val(square), num(eps)))});
    // The weight's gradient takes the product that eager mode keeps, the input's one the input.
    if (!b.needsGradient(0) || b.isSeen(input)) product = b.mul(val(input), val(factor));
  }
  const V scaled = b.needsGradient(0) ? b.mul(val(input), val(factor)) : product;
  normGradients(b, scaled, product == ir::kNone ? scaled : product, factor, dims, false, 2, 99);
  return true;
}

}  // namespace gradients

void batchNorm(B& b, const BatchNormValues& v) {
  const V g = b.gradient();
  const Dims sizes = b.sizes(v.input), channels{sizes[1]};
  Dims dims, each(sizes.size(), 1);
  each[1] = sizes[1];
  double count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d == 1) continue;
    dims.push_back(static_cast<int64_t>(d));
    count *= static_cast<double>(sizes[d]);
  }
  const V sum = b.sum(g, dims, true);
  if (b.isActive(v.bias)) b.accumulateInto(v.bias, b.reshape(sum, channels));
  if (!b.isActive(v.weight) && !b.isActive(v.input)) return;
  const V scaled = b.mul(val(b.sub(val(v.input), val(v.mean))), val(v.scale));
  const V along = b.sum(b.mul(val(g), val(scaled)), dims, true);
  if (b.isActive(v.weight)) b.accumulateInto(v.weight, b.reshape(along, channels));
  if (!b.isActive(v.input)) return;
  const V mean = b.mul(val(b.add(val(sum), val(b.mul(val(scaled), val(along))))), num(1 / count));
  const V factor = b.mul(val(v.scale), val(b.reshape(v.weight, each)));
  b.accumulateInto(v.input, b.mul(val(b.sub(val(g), val(mean))), val(factor)));
}

}  // namespace kintsugi::passes
