// Derivatives of operators that work element by element: autograd's formulas.
#include <cmath>
#include <functional>
#include <numeric>

#include "passes/gradient_builder.h"

namespace kintsugi::passes {

namespace {

using B = GradientBuilder;
using V = B::V;
using ops::Operator;

B::Operand val(V value) { return B::val(value); }

B::Operand num(double value) { return B::num(value); }

// a + alpha * b, or with both in turn
bool addScaled(B& b, size_t first, size_t second, double sign) {
  if (!b.isNone(2) && !b.isNumber(2)) {
    return false;
  }
  const double factor = sign * (b.isNone(2) ? 1 : b.number(2));
  b.accumulateGradient(first, b.gradient());
  if (b.needsGradient(second)) {
    b.accumulateGradient(second, factor == 1 ? b.gradient() : b.mul(val(b.gradient()), num(factor)));
  }
  return true;
}

bool geluByErf(B& b) {
  const V g = b.gradient(), x = b.tensor(0);
  const V erf = b.point(Operator::kErf, {val(b.mul(val(x), num(std::sqrt(0.5))))});
  const V cdf = b.mul(val(b.add(val(erf), num(1))), num(0.5));
  const V gaussian = b.point(Operator::kExp, {val(b.mul(val(b.mul(val(x), val(x))), num(-0.5)))});
  const V density = b.mul(val(gaussian), num(1 / std::sqrt(2 * M_PI)));
  b.accumulateGradient(0, b.mul(val(g), val(b.add(val(cdf), val(b.mul(val(x), val(density)))))));
  return true;
}

bool geluByTanh(B& b) {
  constexpr double kKappa = 0.044715;
  const double beta = std::sqrt(2 / M_PI);
  const V g = b.gradient(), x = b.tensor(0);
  const V square = b.mul(val(x), val(x));
  const V inner =
      b.mul(val(b.add(val(x), val(b.mul(val(b.mul(val(square), val(x))), num(kKappa))))), num(beta));
  const V t = b.point(Operator::kTanh, {val(inner)});
  const V left = b.mul(val(b.add(val(t), num(1))), num(0.5));
  const V slope =
      b.point(Operator::kRsubScalar, {val(b.mul(val(t), val(t))), num(1), B::Operand::integer(1)});
  const V innerSlope = b.mul(val(b.add(val(b.mul(val(square), num(3 * kKappa))), num(1))), num(beta));
  const V right = b.mul(val(b.mul(val(b.mul(val(x), num(0.5))), val(slope))), val(innerSlope));
  b.accumulateGradient(0, b.mul(val(g), val(b.add(val(left), val(right)))));
  return true;
}

// The gradient passes where x is strictly inside the bounds.
bool passInside(B& b, double low, double high) {
  const V x = b.tensor(0);
  const V outside = b.point(
      Operator::kLogicalOr,
      {val(b.compare(x, B::Comparison::kLe, num(low))), val(b.compare(x, B::Comparison::kGe, num(high)))},
      ir::DType::kBool);
  b.accumulateGradient(0, b.zeroWhere(outside, b.gradient()));
  return true;
}

// The part of a gradient that passes a limit, an argument of the operator: 0 for elements beyond it and for
// NaN, and for elements equal to it unless `atLimit`.
V withinLower(B& b, size_t limit, bool atLimit, V gradient) {
  const B::Comparison how = atLimit ? B::Comparison::kGe : B::Comparison::kGt;
  return b.zeroUnless(b.compare(b.tensor(0), how, num(b.number(limit))), gradient);
}

V withinUpper(B& b, size_t limit, bool atLimit, V gradient) {
  const B::Comparison how = atLimit ? B::Comparison::kLe : B::Comparison::kLt;
  return b.zeroUnless(b.compare(b.tensor(0), how, num(b.number(limit))), gradient);
}

// `loses`: how an element that is not the result compares with the other one. Where both are equal, each gets
// half of the gradient.
bool maximumOrMinimum(B& b, B::Comparison loses) {
  const V g = b.gradient(), x = b.tensor(0), y = b.tensor(1);
  const V equal = b.compare(x, B::Comparison::kEq, val(y));
  const V shared =
      b.point(Operator::kWhereSelf, {val(equal), val(b.div(val(g), num(2))), val(g)}, b.dtype(g));
  if (b.needsGradient(0)) {
    b.accumulateGradient(0, b.zeroWhere(b.compare(x, loses, val(y)), shared));
  }
  if (b.needsGradient(1)) {
    b.accumulateGradient(1, b.zeroWhere(b.compare(y, loses, val(x)), shared));
  }
  return true;
}

}  // namespace

namespace gradients {

bool add(B& b) { return addScaled(b, 0, 1, 1); }

bool sub(B& b) { return addScaled(b, 0, 1, -1); }

bool rsub(B& b) { return addScaled(b, 1, 0, -1); }

bool mul(B& b) {
  const V g = b.gradient();
  if (b.needsGradient(0)) {
    b.accumulateGradient(0, b.mul(val(g), b.operand(1)));
  }
  if (b.needsGradient(1)) {
    b.accumulateGradient(1, b.mul(val(g), b.operand(0)));
  }
  return true;
}

bool div(B& b) {
  const V g = b.gradient();
  if (b.needsGradient(0)) {
    b.accumulateGradient(0, b.div(val(g), b.operand(1)));
  }
  if (b.needsGradient(1)) {
    const ir::DType type = b.dtype(g);
    const V ratio = b.point(Operator::kDivTensor, {b.operand(0), b.operand(1)}, type);
    const V quotient = b.point(Operator::kDivTensor, {val(ratio), b.operand(1)}, type);
    b.accumulateGradient(1, b.mul(val(b.negative(g)), val(quotient)));
  }
  return true;
}

bool negative(B& b) {
  b.accumulateGradient(0, b.negative(b.gradient()));
  return true;
}

bool same(B& b) {
  b.accumulateGradient(0, b.gradient());
  return true;
}

bool exponential(B& b) {
  b.accumulateGradient(0, b.mul(val(b.gradient()), val(b.result())));
  return true;
}

bool logarithm(B& b) {
  b.accumulateGradient(0, b.div(val(b.gradient()), val(b.tensor(0))));
  return true;
}

bool root(B& b) {
  b.accumulateGradient(0, b.div(val(b.gradient()), val(b.mul(val(b.result()), num(2)))));
  return true;
}

bool oneOverRoot(B& b) {
  const V r = b.result();
  const V cube = b.mul(val(b.mul(val(r), val(r))), val(r));
  b.accumulateGradient(0, b.mul(val(b.mul(val(b.gradient()), num(-0.5))), val(cube)));
  return true;
}

bool reciprocal(B& b) {
  const V r = b.result();
  b.accumulateGradient(0, b.mul(val(b.negative(b.gradient())), val(b.mul(val(r), val(r)))));
  return true;
}

bool power(B& b) {
  if (!b.isNumber(1)) {
    return false;
  }
  const double exponent = b.number(1);
  const V g = b.gradient(), x = b.tensor(0);
  if (exponent == 0) {
    b.accumulateGradient(0, b.zeros(b.dtype(g), b.sizes(x)));
    return true;
  }
  const V less = exponent == 2 ? x : b.point(Operator::kPowTensorScalar, {val(x), num(exponent - 1)});
  b.accumulateGradient(0, b.mul(val(g), val(b.mul(val(less), num(exponent)))));
  return true;
}

bool square(B& b) {
  b.accumulateGradient(0, b.mul(val(b.gradient()), val(b.mul(val(b.tensor(0)), num(2)))));
  return true;
}

bool tanh(B& b) {
  const V r = b.result();
  const V slope =
      b.point(Operator::kRsubScalar, {val(b.mul(val(r), val(r))), num(1), B::Operand::integer(1)});
  b.accumulateGradient(0, b.mul(val(b.gradient()), val(slope)));
  return true;
}

bool sigmoid(B& b) {
  const V r = b.result();
  const V other = b.point(Operator::kRsubScalar, {val(r), num(1), B::Operand::integer(1)});
  b.accumulateGradient(0, b.mul(val(b.gradient()), val(b.mul(val(other), val(r)))));
  return true;
}

bool errorFunction(B& b) {
  const V x = b.tensor(0);
  const V gaussian = b.point(Operator::kExp, {val(b.negative(b.mul(val(x), val(x))))});
  b.accumulateGradient(0, b.mul(val(b.mul(val(gaussian), num(2 / std::sqrt(M_PI)))), val(b.gradient())));
  return true;
}

bool gelu(B& b) { return b.text(1) == "tanh" ? geluByTanh(b) : geluByErf(b); }

bool silu(B& b) {
  const V x = b.tensor(0);
  const V s = b.point(Operator::kSigmoid, {val(x)});
  const V other = b.point(Operator::kRsubScalar, {val(s), num(1), B::Operand::integer(1)});
  const V slope = b.add(val(b.mul(val(x), val(other))), num(1));
  b.accumulateGradient(0, b.mul(val(b.gradient()), val(b.mul(val(s), val(slope)))));
  return true;
}

bool relu(B& b) {
  b.accumulateGradient(0, b.zeroWhere(b.compare(b.result(), B::Comparison::kLe, num(0)), b.gradient()));
  return true;
}

bool hardtanh(B& b) { return passInside(b, b.isNone(1) ? -1 : b.number(1), b.isNone(2) ? 1 : b.number(2)); }

bool relu6(B& b) { return passInside(b, 0, 6); }

bool clamp(B& b) {
  if ((!b.isNone(1) && !b.isNumber(1)) || (!b.isNone(2) && !b.isNumber(2))) {
    return false;
  }
  V g = b.gradient();
  if (!b.isNone(1)) g = withinLower(b, 1, b.clamps().clamp, g);
  if (!b.isNone(2)) g = withinUpper(b, 2, b.clamps().clamp, g);
  b.accumulateGradient(0, g);
  return true;
}

bool threshold(B& b) {
  if (!b.isNumber(1)) return false;
  b.accumulateGradient(
      0, b.zeroWhere(b.compare(b.tensor(0), B::Comparison::kLe, num(b.number(1))), b.gradient()));
  return true;
}

bool hardshrink(B& b) {
  if (!b.isNone(1) && !b.isNumber(1)) return false;
  const double most = b.isNone(1) ? 0.5 : b.number(1);
  const V above = b.compare(b.tensor(0), B::Comparison::kGe, num(-most));
  const V below = b.compare(b.tensor(0), B::Comparison::kLe, num(most));
  const V inside = b.point(Operator::kLogicalAnd, {val(above), val(below)}, ir::DType::kBool);
  b.accumulateGradient(0, b.zeroWhere(inside, b.gradient()));
  return true;
}

bool clampMin(B& b) {
  if (!b.isNumber(1)) return false;
  b.accumulateGradient(0, withinLower(b, 1, b.clamps().clampMin, b.gradient()));
  return true;
}

bool clampMax(B& b) {
  if (!b.isNumber(1)) return false;
  b.accumulateGradient(0, withinUpper(b, 1, b.clamps().clampMax, b.gradient()));
  return true;
}

bool leakyRelu(B& b) {
  const V g = b.gradient();
  const V positive = b.compare(b.tensor(0), B::Comparison::kGt, num(0));
  const V scaled = b.mul(val(g), num(b.isNone(1) ? 0.01 : b.number(1)));
  b.accumulateGradient(0, b.point(Operator::kWhereSelf, {val(positive), val(g), val(scaled)}, b.dtype(g)));
  return true;
}

// The slope of what is not positive: one number, or one for each channel, which is the second dimension.
bool prelu(B& b) {
  const V g = b.gradient(), x = b.saved(0);
  V slope = b.saved(1);
  const std::vector<int64_t> shape = b.sizes(x), slopes = b.sizes(b.tensor(1));
  std::vector<int64_t> wide(shape.size(), 1);
  if (shape.size() > 1)
    wide[1] = std::accumulate(slopes.begin(), slopes.end(), int64_t{1}, std::multiplies<>());
  slope = b.reshape(slope, wide);
  const V positive = b.compare(x, B::Comparison::kGt, num(0));
  if (b.needsGradient(0)) {
    b.accumulateGradient(0, b.point(Operator::kWhereSelf,
                                    {val(positive), val(g), val(b.mul(val(g), val(slope)))}, b.dtype(g)));
  }
  if (b.needsGradient(1)) {
    const V each = b.zeroWhere(positive, b.mul(val(x), val(g)));
    b.accumulateGradient(1, b.reshape(b.sumTo(each, wide), slopes));
  }
  return true;
}

bool absolute(B& b) {
  const V g = b.gradient(), x = b.tensor(0);
  const V rest =
      b.point(Operator::kWhereSelf,
              {val(b.compare(x, B::Comparison::kLt, num(0))), val(b.negative(g)), val(b.mul(val(g), num(0)))},
              b.dtype(g));
  b.accumulateGradient(
      0, b.point(Operator::kWhereSelf, {val(b.compare(x, B::Comparison::kGt, num(0))), val(g), val(rest)},
                 b.dtype(g)));
  return true;
}

bool maximum(B& b) { return maximumOrMinimum(b, B::Comparison::kLt); }

bool minimum(B& b) { return maximumOrMinimum(b, B::Comparison::kGt); }

bool where(B& b) {
  const V mask = b.tensor(0), g = b.gradient();
  if (b.dtype(mask) != ir::DType::kBool) {
    return false;
  }
  if (b.needsGradient(1)) {
    b.accumulateGradient(1, b.zeroUnless(mask, g));
  }
  if (b.needsGradient(2)) {
    b.accumulateGradient(2, b.zeroWhere(mask, g));
  }
  return true;
}

bool maskedFill(B& b) {
  if (b.needsGradient(2) || b.dtype(b.tensor(1)) != ir::DType::kBool) {
    return false;
  }
  b.accumulateGradient(0, b.zeroWhere(b.tensor(1), b.gradient()));
  return true;
}

bool addcmul(B& b) {
  const V g = b.gradient();
  const double factor = b.isNone(3) ? 1 : b.number(3);
  b.accumulateGradient(0, g);
  if (b.needsGradient(1)) {
    b.accumulateGradient(1, b.mul(val(b.mul(val(g), val(b.tensor(2)))), num(factor)));
  }
  if (b.needsGradient(2)) {
    b.accumulateGradient(2, b.mul(val(b.mul(val(g), val(b.tensor(1)))), num(factor)));
  }
  return true;
}

bool cosine(B& b) {
  const V sine = b.point(Operator::kSin, {val(b.tensor(0))});
  b.accumulateGradient(0, b.mul(val(b.gradient()), val(b.negative(sine))));
  return true;
}

bool sine(B& b) {
  b.accumulateGradient(0, b.mul(val(b.gradient()), val(b.point(Operator::kCos, {val(b.tensor(0))}))));
  return true;
}

// Dropout that does nothing; else it is a product (passes/gradient_graph.h).
bool dropout(B& b) { return b.count() > 2 && (b.operand(2).i == 0 || b.number(1) == 0) ? same(b) : false; }

bool nothing(B&) { return true; }

}  // namespace gradients

}  // namespace kintsugi::passes
