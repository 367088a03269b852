// Derivatives of operators that work element by element: autograd's formulas.
#include <cmath>

#include "passes/gradient_builder.h"

namespace kintsugi::passes {

namespace {

using B = GradientBuilder;
using V = B::V;

B::Operand val(V value) { return B::val(value); }
B::Operand num(double value) { return B::num(value); }

// a + alpha * b, or with both in turn
bool addScaled(B& b, size_t first, size_t second, double sign) {
  if (!b.isNone(2) && !b.isNumber(2)) {
    return false;
  }
  const double factor = sign * (b.isNone(2) ? 1 : b.number(2));
  b.give(first, b.gradient());
  if (b.wants(second)) {
    b.give(second, factor == 1 ? b.gradient() : b.mul(val(b.gradient()), num(factor)));
  }
  return true;
}
bool add(B& b) { return addScaled(b, 0, 1, 1); }
bool sub(B& b) { return addScaled(b, 0, 1, -1); }
bool rsub(B& b) { return addScaled(b, 1, 0, -1); }

bool mul(B& b) {
  const V g = b.gradient();
  if (b.wants(0)) {
    b.give(0, b.mul(val(g), b.operand(1)));
  }
  if (b.wants(1)) {
    b.give(1, b.mul(val(g), b.operand(0)));
  }
  return true;
}

bool div(B& b) {
  const V g = b.gradient();
  if (b.wants(0)) {
    b.give(0, b.div(val(g), b.operand(1)));
  }
  if (b.wants(1)) {
    const std::string type = b.dtype(g);
    const V ratio = b.point("aten.div.Tensor", {b.operand(0), b.operand(1)}, type);
    const V again = b.point("aten.div.Tensor", {val(ratio), b.operand(1)}, type);
    b.give(1, b.mul(val(b.negative(g)), val(again)));
  }
  return true;
}

bool negative(B& b) {
  b.give(0, b.negative(b.gradient()));
  return true;
}
bool same(B& b) {
  b.give(0, b.gradient());
  return true;
}
bool exponential(B& b) {
  b.give(0, b.mul(val(b.gradient()), val(b.result())));
  return true;
}
bool logarithm(B& b) {
  b.give(0, b.div(val(b.gradient()), val(b.tensor(0))));
  return true;
}
bool root(B& b) {
  b.give(0, b.div(val(b.gradient()), val(b.mul(val(b.result()), num(2)))));
  return true;
}
bool oneOverRoot(B& b) {
  const V r = b.result();
  const V cube = b.mul(val(b.mul(val(r), val(r))), val(r));
  b.give(0, b.mul(val(b.mul(val(b.gradient()), num(-0.5))), val(cube)));
  return true;
}
bool reciprocal(B& b) {
  const V r = b.result();
  b.give(0, b.mul(val(b.negative(b.gradient())), val(b.mul(val(r), val(r)))));
  return true;
}

bool power(B& b) {
  if (!b.isNumber(1)) {
    return false;
  }
  const double exponent = b.number(1);
  const V g = b.gradient(), x = b.tensor(0);
  if (exponent == 0) {
    b.give(0, b.zeros(b.dtype(g), b.sizes(x)));
    return true;
  }
  const V less = exponent == 2 ? x : b.point("aten.pow.Tensor_Scalar", {val(x), num(exponent - 1)});
  b.give(0, b.mul(val(g), val(b.mul(val(less), num(exponent)))));
  return true;
}
bool square(B& b) {
  b.give(0, b.mul(val(b.gradient()), val(b.mul(val(b.tensor(0)), num(2)))));
  return true;
}

bool tanh(B& b) {
  const V r = b.result();
  const V slope = b.point("aten.rsub.Scalar", {val(b.mul(val(r), val(r))), num(1), B::Operand::integer(1)});
  b.give(0, b.mul(val(b.gradient()), val(slope)));
  return true;
}
bool sigmoid(B& b) {
  const V r = b.result();
  const V other = b.point("aten.rsub.Scalar", {val(r), num(1), B::Operand::integer(1)});
  b.give(0, b.mul(val(b.gradient()), val(b.mul(val(other), val(r)))));
  return true;
}
bool errorFunction(B& b) {
  const V x = b.tensor(0);
  const V bell = b.point("aten.exp.default", {val(b.negative(b.mul(val(x), val(x))))});
  b.give(0, b.mul(val(b.mul(val(bell), num(2 / std::sqrt(M_PI)))), val(b.gradient())));
  return true;
}

bool geluByErf(B& b) {
  const V g = b.gradient(), x = b.tensor(0);
  const V erf = b.point("aten.erf.default", {val(b.mul(val(x), num(std::sqrt(0.5))))});
  const V below = b.mul(val(b.add(val(erf), num(1))), num(0.5));
  const V bell = b.point("aten.exp.default", {val(b.mul(val(b.mul(val(x), val(x))), num(-0.5)))});
  const V density = b.mul(val(bell), num(1 / std::sqrt(2 * M_PI)));
  b.give(0, b.mul(val(g), val(b.add(val(below), val(b.mul(val(x), val(density)))))));
  return true;
}

bool geluByTanh(B& b) {
  constexpr double kKappa = 0.044715;
  const double beta = std::sqrt(2 / M_PI);
  const V g = b.gradient(), x = b.tensor(0);
  const V square = b.mul(val(x), val(x));
  const V inner =
      b.mul(val(b.add(val(x), val(b.mul(val(b.mul(val(square), val(x))), num(kKappa))))), num(beta));
  const V t = b.point("aten.tanh.default", {val(inner)});
  const V left = b.mul(val(b.add(val(t), num(1))), num(0.5));
  const V slope = b.point("aten.rsub.Scalar", {val(b.mul(val(t), val(t))), num(1), B::Operand::integer(1)});
  const V steep = b.mul(val(b.add(val(b.mul(val(square), num(3 * kKappa))), num(1))), num(beta));
  const V right = b.mul(val(b.mul(val(b.mul(val(x), num(0.5))), val(slope))), val(steep));
  b.give(0, b.mul(val(g), val(b.add(val(left), val(right)))));
  return true;
}

bool gelu(B& b) { return b.text(1) == "tanh" ? geluByTanh(b) : geluByErf(b); }

bool silu(B& b) {
  const V x = b.tensor(0);
  const V s = b.point("aten.sigmoid.default", {val(x)});
  const V other = b.point("aten.rsub.Scalar", {val(s), num(1), B::Operand::integer(1)});
  const V slope = b.add(val(b.mul(val(x), val(other))), num(1));
  b.give(0, b.mul(val(b.gradient()), val(b.mul(val(s), val(slope)))));
  return true;
}

bool relu(B& b) {
  b.give(0, b.zeroWhere(b.compare("le", b.result(), num(0)), b.gradient()));
  return true;
}

// The gradient passes strictly between the bounds.
bool between(B& b, double low, double high) {
  const V x = b.tensor(0);
  const V outside = b.point("aten.logical_or.default",
                            {val(b.compare("le", x, num(low))), val(b.compare("ge", x, num(high)))}, "bool");
  b.give(0, b.zeroWhere(outside, b.gradient()));
  return true;
}
bool hardtanh(B& b) { return between(b, b.isNone(1) ? -1 : b.number(1), b.isNone(2) ? 1 : b.number(2)); }
bool relu6(B& b) { return between(b, 0, 6); }

// Bounds included.
bool clamp(B& b) {
  if ((!b.isNone(1) && !b.isNumber(1)) || (!b.isNone(2) && !b.isNumber(2))) {
    return false;
  }
  const V x = b.tensor(0);
  V g = b.gradient();
  if (!b.isNone(1)) {
    g = b.zeroUnless(b.compare("ge", x, num(b.number(1))), g);
  }
  if (!b.isNone(2)) {
    g = b.zeroUnless(b.compare("le", x, num(b.number(2))), g);
  }
  b.give(0, g);
  return true;
}
bool clampOne(B& b, std::string_view how) {
  if (!b.isNumber(1)) {
    return false;
  }
  b.give(0, b.zeroUnless(b.compare(how, b.tensor(0), num(b.number(1))), b.gradient()));
  return true;
}
bool clampMin(B& b) { return clampOne(b, "ge"); }
bool clampMax(B& b) { return clampOne(b, "le"); }

bool leakyRelu(B& b) {
  const V g = b.gradient();
  const V positive = b.compare("gt", b.tensor(0), num(0));
  const V scaled = b.mul(val(g), num(b.isNone(1) ? 0.01 : b.number(1)));
  b.give(0, b.point("aten.where.self", {val(positive), val(g), val(scaled)}, b.dtype(g)));
  return true;
}

bool absolute(B& b) {
  const V g = b.gradient(), x = b.tensor(0);
  const V rest =
      b.point("aten.where.self",
              {val(b.compare("lt", x, num(0))), val(b.negative(g)), val(b.mul(val(g), num(0)))}, b.dtype(g));
  b.give(0, b.point("aten.where.self", {val(b.compare("gt", x, num(0))), val(g), val(rest)}, b.dtype(g)));
  return true;
}

// Where both are equal, each gets half.
bool larger(B& b, std::string_view lost) {
  const V g = b.gradient(), x = b.tensor(0), y = b.tensor(1);
  const V equal = b.compare("eq", x, val(y));
  const V shared = b.point("aten.where.self", {val(equal), val(b.div(val(g), num(2))), val(g)}, b.dtype(g));
  if (b.wants(0)) {
    b.give(0, b.zeroWhere(b.compare(lost, x, val(y)), shared));
  }
  if (b.wants(1)) {
    b.give(1, b.zeroWhere(b.compare(lost, y, val(x)), shared));
  }
  return true;
}
bool maximum(B& b) { return larger(b, "lt"); }
bool minimum(B& b) { return larger(b, "gt"); }

bool where(B& b) {
  const V mask = b.tensor(0), g = b.gradient();
  if (b.dtype(mask) != "bool") {
    return false;
  }
  if (b.wants(1)) {
    b.give(1, b.zeroUnless(mask, g));
  }
  if (b.wants(2)) {
    b.give(2, b.zeroWhere(mask, g));
  }
  return true;
}
bool maskedFill(B& b) {
  if (b.wants(2) || b.dtype(b.tensor(1)) != "bool") {
    return false;
  }
  b.give(0, b.zeroWhere(b.tensor(1), b.gradient()));
  return true;
}

bool addcmul(B& b) {
  const V g = b.gradient();
  const double factor = b.isNone(3) ? 1 : b.number(3);
  b.give(0, g);
  if (b.wants(1)) {
    b.give(1, b.mul(val(b.mul(val(g), val(b.tensor(2)))), num(factor)));
  }
  if (b.wants(2)) {
    b.give(2, b.mul(val(b.mul(val(g), val(b.tensor(1)))), num(factor)));
  }
  return true;
}

bool cosine(B& b) {
  const V sine = b.point("aten.sin.default", {val(b.tensor(0))});
  b.give(0, b.mul(val(b.gradient()), val(b.negative(sine))));
  return true;
}
bool sine(B& b) {
  b.give(0, b.mul(val(b.gradient()), val(b.point("aten.cos.default", {val(b.tensor(0))}))));
  return true;
}

// Dropout that does nothing; else it is a product (passes/gradient_graph.h).
bool dropout(B& b) { return b.count() > 2 && b.operand(2).i == 0 ? same(b) : false; }
bool nothing(B&) { return true; }

constexpr GradientRule kRows[] = {
    {"aten.add.Tensor", true, add},
    {"aten.add.Scalar", true, add},
    {"aten.sub.Tensor", true, sub},
    {"aten.sub.Scalar", true, sub},
    {"aten.rsub.Tensor", true, rsub},
    {"aten.rsub.Scalar", true, rsub},
    {"aten.mul.Tensor", true, mul},
    {"aten.mul.Scalar", true, mul},
    {"aten.div.Tensor", true, div},
    {"aten.div.Scalar", true, div},
    {"aten.true_divide.Tensor", true, div},
    {"aten.neg.default", true, negative},
    {"aten.exp.default", true, exponential},
    {"aten.log.default", true, logarithm},
    {"aten.sqrt.default", true, root},
    {"aten.rsqrt.default", true, oneOverRoot},
    {"aten.reciprocal.default", true, reciprocal},
    {"aten.pow.Tensor_Scalar", true, power},
    {"aten.square.default", true, square},
    {"aten.tanh.default", true, tanh},
    {"aten.sigmoid.default", true, sigmoid},
    {"aten.erf.default", true, errorFunction},
    {"aten.gelu.default", true, gelu},
    {"aten.silu.default", true, silu},
    {"aten.relu.default", true, relu},
    {"aten.relu6.default", true, relu6},
    {"aten.hardtanh.default", true, hardtanh},
    {"aten.leaky_relu.default", true, leakyRelu},
    {"aten.clamp.default", true, clamp},
    {"aten.clamp_min.default", true, clampMin},
    {"aten.clamp_max.default", true, clampMax},
    {"aten.abs.default", true, absolute},
    {"aten.maximum.default", true, maximum},
    {"aten.minimum.default", true, minimum},
    {"aten.where.self", true, where},
    {"aten.where.ScalarSelf", true, where},
    {"aten.where.ScalarOther", true, where},
    {"aten.masked_fill.Scalar", true, maskedFill},
    {"aten.masked_fill.Tensor", true, maskedFill},
    {"aten.addcmul.default", true, addcmul},
    {"aten.cos.default", true, cosine},
    {"aten.sin.default", true, sine},
    {"aten.clone.default", true, same},
    {"aten._to_copy.default", true, same},
    {"aten.to.dtype", false, same},
    {"aten.to.other", false, same},
    {"aten.type_as.default", false, same},
    {"aten.contiguous.default", false, same},
    {"aten.dropout.default", false, dropout},
    {"aten.feature_dropout.default", false, dropout},
    // What autograd does not follow, or what is constant but for steps.
    {"aten.eq.Tensor", true, nothing},
    {"aten.eq.Scalar", true, nothing},
    {"aten.ne.Tensor", true, nothing},
    {"aten.ne.Scalar", true, nothing},
    {"aten.lt.Tensor", true, nothing},
    {"aten.lt.Scalar", true, nothing},
    {"aten.le.Tensor", true, nothing},
    {"aten.le.Scalar", true, nothing},
    {"aten.gt.Tensor", true, nothing},
    {"aten.gt.Scalar", true, nothing},
    {"aten.ge.Tensor", true, nothing},
    {"aten.ge.Scalar", true, nothing},
    {"aten.isnan.default", true, nothing},
    {"aten.logical_and.default", true, nothing},
    {"aten.logical_or.default", true, nothing},
    {"aten.logical_xor.default", true, nothing},
    {"aten.logical_not.default", true, nothing},
    {"aten.bitwise_and.Tensor", true, nothing},
    {"aten.bitwise_or.Tensor", true, nothing},
    {"aten.bitwise_not.default", true, nothing},
};

}  // namespace

std::span<const GradientRule> pointwiseGradients() { return kRows; }

}  // namespace kintsugi::passes
