// Derivatives of matrix products and look-ups.
#include <algorithm>
#include <limits>
#include <numeric>

#include "passes/gradient_builder.h"

namespace kintsugi::passes {

namespace {

using B = GradientBuilder;
using V = B::V;
using ops::Operator;

using Dims = std::vector<int64_t>;

B::Operand val(V value) { return B::val(value); }

V matrixTransposed(B& b, V x) { return b.transpose(x, b.rank(x) - 2, b.rank(x) - 1); }

// All dimensions but the last as one.
V asMatrix(B& b, V x) {
  const Dims sizes = b.sizes(x);
  const int64_t rows = std::accumulate(sizes.begin(), sizes.end() - 1, int64_t{1}, std::multiplies<>());
  return b.reshape(x, {rows, sizes.back()});
}

bool product(B& b, size_t first, size_t second) {
  const V g = b.gradient(), x = b.tensor(first), y = b.tensor(second);
  if (b.needsGradient(first)) {
    b.accumulateGradient(first, b.matmul(g, matrixTransposed(b, y)));
  }
  if (b.needsGradient(second)) {
    b.accumulateGradient(second, b.matmul(matrixTransposed(b, x), g));
  }
  return true;
}

bool isOne(B& b, size_t k) { return b.isNone(k) || (b.isNumber(k) && b.number(k) == 1); }

// Does a mask fit, as ATen's kernel wants it?
bool fitsMask(const Dims& mask, const Dims& scores) {
  if (mask.size() != 2 && mask.size() != 4) {
    return false;
  }
  const size_t shift = scores.size() - mask.size();
  for (size_t d = 0; d < mask.size(); ++d) {
    if (mask[d] != 1 && mask[d] != scores[d + shift]) {
      return false;
    }
  }
  return true;
}

// [batch, head, row, ...] where heads lie within rows.
ir::TensorDesc withinRows(ir::DType dtype, const Dims& sizes) {
  ir::TensorDesc meta = ir::TensorDesc::packed(dtype, sizes);
  const int64_t heads = sizes[1], rows = sizes[2], width = sizes.size() > 3 ? sizes[3] : 1;
  meta.strides = {rows * heads * width, width, heads * width};
  if (sizes.size() > 3) {
    meta.strides.push_back(1);
  }
  return meta;
}

bool endsInARun(const ir::TensorDesc& meta) { return meta.strides.empty() || meta.strides.back() == 1; }

}  // namespace

namespace gradients {

// x [.., in], weight [out, in], bias
bool linear(B& b) {
  const V x = b.tensor(0), w = b.tensor(1);
  if (b.rank(x) == 0 || b.rank(w) != 2 || b.rank(b.gradient()) == 0) {
    return false;
  }
  const V g = asMatrix(b, b.gradient());
  if (b.needsGradient(0)) {
    b.accumulateGradient(0, b.reshape(b.matmul(g, b.saved(1)), b.sizes(x)));
  }
  if (b.needsGradient(1)) {
    b.accumulateGradient(1, b.matmul(matrixTransposed(b, g), asMatrix(b, b.saved(0))));
  }
  if (b.needsGradient(2)) {
    b.accumulateGradient(2, g);
  }
  return true;
}

bool mm(B& b) { return product(b, 0, 1); }

// beta * input + alpha * (a @ b)
bool addmm(B& b) {
  if (!isOne(b, 3) || !isOne(b, 4)) {
    return false;
  }
  if (b.needsGradient(0)) {
    b.accumulateGradient(0, b.gradient());
  }
  return product(b, 1, 2);
}

bool matmul(B& b) {
  const V x = b.tensor(0), y = b.tensor(1);
  const Dims left = b.sizes(x), right = b.sizes(y);
  if (left.size() == 2 && right.size() == 2) {
    return product(b, 0, 1);
  }
  if (left.size() > 2 && right.size() == 2) {
    const V g = asMatrix(b, b.gradient());
    if (b.needsGradient(0)) {
      b.accumulateGradient(0, b.reshape(b.matmul(g, matrixTransposed(b, b.saved(1))), left));
    }
    if (b.needsGradient(1)) {
      b.accumulateGradient(1, b.matmul(matrixTransposed(b, asMatrix(b, b.saved(0))), g));
    }
    return true;
  }
  if (left.size() < 3 || left.size() != right.size() ||
      !std::equal(left.begin(), left.end() - 2, right.begin())) {
    return false;
  }
  const int64_t batch = std::accumulate(left.begin(), left.end() - 2, int64_t{1}, std::multiplies<>());
  const auto flat = [&](V v) {
    const Dims sizes = b.sizes(v);
    return b.reshape(v, {batch, sizes[sizes.size() - 2], sizes.back()});
  };
  const V g = flat(b.gradient());
  if (b.needsGradient(0)) {
    b.accumulateGradient(0, b.reshape(b.matmul(g, matrixTransposed(b, flat(b.saved(1)))), left));
  }
  if (b.needsGradient(1)) {
    b.accumulateGradient(1, b.reshape(b.matmul(matrixTransposed(b, flat(b.saved(0))), g), right));
  }
  return true;
}

// (weight, indices, padding_idx, scale_grad_by_freq, sparse)
bool embedding(B& b) {
  if (b.operand(4).i != 0 || b.operand(2).kind != ir::OperandKind::kInt ||
      b.operand(3).kind != ir::OperandKind::kBool) {
    return false;
  }
  const V weight = b.tensor(0);
  ir::TensorDesc meta = ir::TensorDesc::packed(b.dtype(weight), b.sizes(weight));
  const int64_t rows = meta.sizes[0];
  b.accumulateGradient(
      0, b.make(Operator::kEmbeddingDenseBackward,
                {val(b.gradient()), val(b.tensor(1)), B::Operand::integer(rows), b.operand(2), b.operand(3)},
                std::move(meta)));
  return true;
}

// (query, key, value, mask, dropout, causal, scale, grouped): where ATen would take its one kernel, that one
// and its derivative are called.
bool attention(B& b) {
  const V query = b.tensor(0), key = b.tensor(1), value = b.tensor(2);
  const bool plain = b.count() == 8 && b.isNumber(4) && b.number(4) == 0 && b.isNumber(5) &&
                     (b.isNone(6) || b.isNumber(6)) && b.isNumber(7) && b.number(7) == 0;
  const Dims q = b.sizes(query), k = b.sizes(key);
  if (!plain || q.size() != 4 || k.size() != 4 || b.sizes(value) != k || q[0] != k[0] || q[1] != k[1] ||
      q[3] != k[3] || std::find(q.begin(), q.end(), 0) != q.end() ||
      std::find(k.begin(), k.end(), 0) != k.end()) {
    return false;
  }
  for (const V tensor : {query, key, value}) {
    if (b.dtype(tensor) != ir::DType::kF32 || !endsInARun(b.meta(tensor))) {
      return false;
    }
  }
  B::Operand mask = B::Operand::none();
  if (!b.isNone(3)) {
    const V given = b.tensor(3);
    if (given == ir::kNone || b.isActive(given) || b.integer(5) != 0 ||
        !fitsMask(b.sizes(given), {q[0], q[1], q[2], k[2]})) {
      return false;
    }
    const B::InForward forward(b);
    if (b.dtype(given) == ir::DType::kBool) {
      const V zero = b.zeros(ir::DType::kF32, {1});
      constexpr double kNever = -std::numeric_limits<double>::infinity();
      mask =
          val(b.point(Operator::kWhereScalarOther, {val(given), val(zero), B::num(kNever)}, ir::DType::kF32));
    } else if (b.dtype(given) == ir::DType::kF32) {
      mask = val(given);
    } else {
      return false;
    }
  }
  const B::Operand causal = b.operand(5), scale = b.isNone(6) ? B::Operand::none() : b.operand(6);
  const V g = endsInARun(b.meta(b.gradient())) ? b.gradient() : b.contiguous(b.gradient());
  const ir::Type types[] = {b.typeOf(b.result()), b.typeFor(withinRows(ir::DType::kF32, {q[0], q[1], q[2]}))};
  const B::Operand forward[] = {val(query), val(key), val(value), B::num(0), causal, mask, scale};
  const V out = b.replace(Operator::kPrivateScaledDotProductFlashAttentionForCpu, forward, types);
  const B::Operand backward[] = {val(g),       val(query), val(key), val(value), val(out),
                                 val(out + 1), B::num(0),  causal,   mask,       scale};
  const ir::TensorDesc metas[] = {withinRows(ir::DType::kF32, q), withinRows(ir::DType::kF32, k),
                                  withinRows(ir::DType::kF32, k)};
  const V made = b.makeMany(Operator::kPrivateScaledDotProductFlashAttentionForCpuBackward, backward, metas);
  for (uint32_t at = 0; at < 3; ++at) {
    b.accumulateGradient(at, made + at);
  }
  return true;
}

}  // namespace gradients
}  // namespace kintsugi::passes
