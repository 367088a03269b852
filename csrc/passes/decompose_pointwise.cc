// Operators that work element by element, as core operations. The formulas are ATen's own, so that NaN,
// infinities and signed zeros come out the same.
#include <algorithm>
#include <cmath>

#include "passes/build_graph.h"
#include "passes/operator_rules.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

using D = Decomposer;

bool isNumeric(Elem elem) { return elem != Elem::kBool && elem != Elem::kOther; }

// A number as small floats hold it: to nearest, ties to even.
double roundedTo(double number, Elem elem) {
  if (!isSmallFloat(elem) || !std::isfinite(number) || number == 0) {
    return number;
  }
  const bool half = elem == Elem::kF16;
  int exponent = 0;
  std::frexp(number, &exponent);
  const int last = half ? std::max(exponent - 11, -24) : std::max(exponent - 8, -133);  // digit
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(number, -last)), last);
  return half && std::abs(rounded) > 65504 ? std::copysign(HUGE_VAL, rounded) : rounded;
}

// A number that ATen makes a tensor of the result's type of.
NodeId converted(D& d, size_t k, Elem elem) {
  const std::optional<double> number = isSmallFloat(elem) ? d.number(k) : std::nullopt;
  if (number && std::isfinite(*number) && std::abs(*number) > largestIn(elem)) {
    return d.fail();
  }
  return number ? d.constant(roundedTo(*number, elem), elem) : d.as(k, elem);
}

// a + alpha * b, which ATen rounds once.
NodeId scaled(D& d, Core op, size_t a, size_t b) {
  const Elem elem = d.elem();
  if (!isNumeric(elem)) {
    return d.fail();
  }
  NodeId other = converted(d, b, elem);
  if (d.isComputed(2) || d.number(2, 1) != 1) {
    if (d.strict()) {
      return d.fail();
    }
    if (isFloat(elem)) {
      NodeId alpha = converted(d, 2, elem);
      alpha = op == Core::kSub ? d.point(Core::kNeg, elem, {alpha}) : alpha;
      return d.point(Core::kFma, elem, {other, alpha, converted(d, a, elem)});
    }
    other = d.point(Core::kMul, elem, {other, d.as(2, elem)});
  }
  return d.point(op, elem, {converted(d, a, elem), other});
}

// Small floats are compared with numbers that have been rounded to them.
bool isExactIn(double number, Elem elem) {
  return !isSmallFloat(elem) || (std::abs(number) <= 256 && number == std::trunc(number));
}

NodeId select(D& d, size_t condition, size_t yes, size_t no) {
  const NodeId mask = d.tensor(condition);
  if (d.failed() || d.node(mask).elem != Elem::kBool) {
    return d.fail();
  }
  return d.point(Core::kSelect, d.elem(), {mask, d.as(yes, d.elem()), d.as(no, d.elem())});
}

// NaN passes; where the bounds cross, the upper one wins.
NodeId bounded(D& d, NodeId x, std::optional<double> low, std::optional<double> high) {
  const Elem elem = d.elem();
  if (!isFloat(elem) || std::isnan(low.value_or(0)) || std::isnan(high.value_or(0))) {
    return d.fail();
  }
  if (low) {
    const NodeId bound = d.constant(*low, elem);
    x = d.point(Core::kSelect, elem, {d.point(Core::kLt, Elem::kBool, {x, bound}), bound, x});
  }
  if (high) {
    const NodeId bound = d.constant(*high, elem);
    x = d.point(Core::kSelect, elem, {d.point(Core::kGt, Elem::kBool, {x, bound}), bound, x});
  }
  return x;
}

NodeId sixth(D& d, NodeId x) {
  const NodeId shifted = d.point(Core::kAdd, d.elem(), {x, d.constant(3, d.elem())});
  return bounded(d, shifted, 0, 6);
}

// What eager mode does for the current operator's operand.
ops::GeluForm geluForm(D& d, NodeId x) {
  const ops::GeluForms& forms = d.geluForms();
  const Node& node = d.node(x);
  ops::GeluForm form = d.elem() == Elem::kBF16 ? forms.bf16 : d.elem() == Elem::kF16 ? forms.f16 : forms.f32;
  if (d.elem() == Elem::kF64 || !isContiguous(node.sizes, node.strides) || elementCount(node.sizes) == 1) {
    form.losesInfinity = form.halvesLast = false;
  }
  return form;
}

// x / sqrt(2) as x + (sqrt(1/2) - 1) x: NaN for infinity, at the price of the product alone.
NodeId overRootOfTwo(D& d, NodeId x) {
  const NodeId less = d.constant(std::sqrt(0.5) - 1, d.elem());
  if (levelInfo(target().machine.level).fma) return d.point(Core::kFma, d.elem(), {x, less, x});
  return d.point(Core::kAdd, d.elem(), {x, d.point(Core::kMul, d.elem(), {x, less})});
}

// x (1 + erf(x / sqrt(2))) / 2
NodeId geluByErf(D& d, NodeId x) {
  const Elem elem = d.elem();
  const auto point = [&](Core op, std::initializer_list<NodeId> args) { return d.point(op, elem, args); };
  if (d.failed()) return ir::kNone;
  const ops::GeluForm form = geluForm(d, d.tensor(0));
  const NodeId half = d.constant(0.5, elem);
  const NodeId halved = form.halvesLast ? ir::kNone : point(Core::kMul, {x, half});
  const NodeId erf = point(
      Core::kErf,
      {form.losesInfinity ? overRootOfTwo(d, x) : point(Core::kMul, {x, d.constant(std::sqrt(0.5), elem)})});
  if (!form.halvesLast && !isSmallFloat(elem) && !form.keepsSign) {
    return point(Core::kFma, {halved, erf, halved});
  }
  const NodeId sum = point(Core::kAdd, {d.constant(1, elem), erf});
  return form.halvesLast ? point(Core::kMul, {point(Core::kMul, {x, sum}), half})
                         : point(Core::kMul, {halved, sum});
}

NodeId onePlusExpOfMinus(D& d, NodeId x) {
  const Elem elem = d.elem();
  return d.point(Core::kAdd, elem,
                 {d.constant(1, elem), d.point(Core::kExp, elem, {d.point(Core::kNeg, elem, {x})})});
}

}  // namespace

namespace decompositions {

NodeId relu6(D& d) { return bounded(d, d.as(0, d.elem()), 0, 6); }

NodeId unary(D& d, Core op) {
  return isNumeric(d.elem()) ? d.point(op, d.elem(), {d.as(0, d.elem())}) : d.fail();
}

NodeId binary(D& d, Core op) {
  return isNumeric(d.elem()) ? d.point(op, d.elem(), {d.as(0, d.elem()), d.as(1, d.elem())}) : d.fail();
}

NodeId add(D& d) { return scaled(d, Core::kAdd, 0, 1); }

NodeId sub(D& d) { return scaled(d, Core::kSub, 0, 1); }

NodeId rsub(D& d) { return scaled(d, Core::kSub, 1, 0); }

NodeId compare(D& d, Core op) {
  const NodeId a = d.tensor(0);
  if (d.failed()) {
    return a;
  }
  const Elem elem = d.node(a).elem;
  const std::optional<double> number = d.number(1);
  NodeId b = ir::kNone;
  if (number) {
    b = isExactIn(*number, elem) ? d.as(1, elem) : d.fail();
  } else {
    b = d.tensor(1);
  }
  const bool ordered = op != Core::kEq && op != Core::kNe;
  if (d.failed() || d.node(b).elem != elem || (ordered && elem == Elem::kBool)) {
    return d.fail();
  }
  return d.point(op, Elem::kBool, {a, b});
}

NodeId logical(D& d, Core op) {
  return d.point(op, Elem::kBool, {d.as(0, Elem::kBool), d.as(1, Elem::kBool)});
}

NodeId bitwise(D& d, Core op) {
  const NodeId a = d.tensor(0);
  const NodeId b = d.tensor(1);
  const bool bools = !d.failed() && d.node(a).elem == Elem::kBool && d.node(b).elem == Elem::kBool;
  return bools ? d.point(op, Elem::kBool, {a, b}) : d.fail();
}

NodeId logicalNot(D& d) { return d.point(Core::kNot, Elem::kBool, {d.as(0, Elem::kBool)}); }

NodeId bitwiseNot(D& d) {
  const NodeId a = d.tensor(0);
  return !d.failed() && d.node(a).elem == Elem::kBool ? d.point(Core::kNot, Elem::kBool, {a}) : d.fail();
}

NodeId where(D& d) { return select(d, 0, 1, 2); }

NodeId maskedFill(D& d) { return select(d, 1, 2, 0); }

NodeId relu(D& d) {
  if (!isNumeric(d.elem())) {
    return d.fail();
  }
  const NodeId x = d.as(0, d.elem()), zero = d.constant(0, d.elem());
  return d.point(Core::kSelect, d.elem(), {d.point(Core::kLt, Elem::kBool, {x, zero}), zero, x});
}

// (self, threshold, value): NaN stays.
NodeId threshold(D& d) {
  if (!isFloat(d.elem())) return d.fail();
  const NodeId x = d.as(0, d.elem()), most = converted(d, 1, d.elem()), value = converted(d, 2, d.elem());
  return d.point(Core::kSelect, d.elem(), {d.point(Core::kLe, Elem::kBool, {x, most}), value, x});
}

// (self, lambd): 0 from -lambd to lambd; NaN stays.
NodeId hardshrink(D& d) {
  if (!isFloat(d.elem()) || (!d.isNone(1) && !d.number(1))) return d.fail();
  const double most = roundedTo(d.number(1, 0.5), d.elem());
  const NodeId x = d.as(0, d.elem());
  const NodeId above = d.point(Core::kGe, Elem::kBool, {x, d.constant(-most, d.elem())});
  const NodeId below = d.point(Core::kLe, Elem::kBool, {x, d.constant(most, d.elem())});
  const NodeId inside = d.point(Core::kAnd, Elem::kBool, {above, below});
  return d.point(Core::kSelect, d.elem(), {inside, d.constant(0, d.elem()), x});
}

NodeId clamp(D& d) {
  if ((!d.isNone(1) && !d.number(1)) || (!d.isNone(2) && !d.number(2))) {
    return d.fail();
  }
  return bounded(d, d.as(0, d.elem()), d.number(1), d.number(2));
}

NodeId clampMin(D& d) { return d.number(1) ? bounded(d, d.as(0, d.elem()), d.number(1), {}) : d.fail(); }

NodeId clampMax(D& d) { return d.number(1) ? bounded(d, d.as(0, d.elem()), {}, d.number(1)) : d.fail(); }

NodeId hardtanh(D& d) { return bounded(d, d.as(0, d.elem()), d.number(1, -1), d.number(2, 1)); }

NodeId hardsigmoid(D& d) {
  return d.point(Core::kDiv, d.elem(), {sixth(d, d.as(0, d.elem())), d.constant(6, d.elem())});
}

NodeId hardswish(D& d) {
  const NodeId x = d.as(0, d.elem());
  return d.point(Core::kDiv, d.elem(),
                 {d.point(Core::kMul, d.elem(), {x, sixth(d, x)}), d.constant(6, d.elem())});
}

NodeId leakyRelu(D& d) {
  const NodeId x = d.as(0, d.elem());
  const NodeId scaledDown = d.point(Core::kMul, d.elem(), {x, d.constant(d.number(1, 0.01), d.elem())});
  const NodeId positive = d.point(Core::kGt, Elem::kBool, {x, d.constant(0, d.elem())});
  return d.point(Core::kSelect, d.elem(), {positive, x, scaledDown});
}

// (self, weight): one number, or one for each channel, which is the second dimension.
NodeId prelu(D& d) {
  const NodeId x = d.tensor(0), slopes = d.tensor(1);
  if (d.failed() || !isFloat(d.elem()) || d.node(x).elem != d.elem() || d.node(slopes).elem != d.elem()) {
    return d.fail();
  }
  const bool one = elementCount(d.node(slopes).sizes) == 1;
  const NodeId slope = one ? d.view(slopes, {}, {}) : d.broadcastDim(slopes, 1, d.sizes().size());
  if (d.failed()) return ir::kNone;
  const NodeId positive = d.point(Core::kGt, Elem::kBool, {x, d.constant(0, d.elem())});
  return d.point(Core::kSelect, d.elem(), {positive, x, d.point(Core::kMul, d.elem(), {slope, x})});
}

NodeId sigmoid(D& d) {
  return d.point(Core::kDiv, d.elem(), {d.constant(1, d.elem()), onePlusExpOfMinus(d, d.as(0, d.elem()))});
}

NodeId silu(D& d) {
  const NodeId x = d.as(0, d.elem());
  return d.point(Core::kDiv, d.elem(), {x, onePlusExpOfMinus(d, x)});
}

NodeId gelu(D& d) {
  const Elem elem = d.elem();
  const NodeId x = d.as(0, elem);
  if (d.isNone(1) || d.text(1) == "none") {
    return geluByErf(d, x);
  }
  if (d.text(1) == "tanh") {
    const NodeId square = d.point(Core::kMul, elem, {x, x});
    const NodeId cube = d.point(Core::kMul, elem, {square, x});
    const NodeId sum =
        d.point(Core::kAdd, elem, {x, d.point(Core::kMul, elem, {cube, d.constant(0.044715, elem)})});
    const double beta = std::sqrt(2.0) * (2 / std::sqrt(M_PI)) * 0.5;
    // (1 + tanh(y)) / 2 = 1 / (1 + exp(-2y)): no difference of numbers that are close to each other.
    const NodeId power =
        d.point(Core::kExp, elem, {d.point(Core::kMul, elem, {sum, d.constant(-2 * beta, elem)})});
    return d.point(Core::kDiv, elem, {x, d.point(Core::kAdd, elem, {d.constant(1, elem), power})});
  }
  return d.fail();
}

NodeId rsqrt(D& d) {
  return d.point(Core::kDiv, d.elem(),
                 {d.constant(1, d.elem()), d.point(Core::kSqrt, d.elem(), {d.as(0, d.elem())})});
}

NodeId reciprocal(D& d) {
  return d.point(Core::kDiv, d.elem(), {d.constant(1, d.elem()), d.as(0, d.elem())});
}

NodeId square(D& d) {
  const NodeId x = d.as(0, d.elem());
  return isNumeric(d.elem()) ? d.point(Core::kMul, d.elem(), {x, x}) : d.fail();
}

NodeId power(D& d) {
  const std::optional<double> exponent = d.number(1);
  if (!exponent || !isFloat(d.elem())) {
    return d.fail();
  }
  const NodeId x = d.as(0, d.elem());
  if (*exponent == 2) {
    return square(d);
  }
  if (*exponent == 3 && d.elem() == Elem::kBF16) {  // ATen's vectors of it round each product
    const NodeId two = d.cast(d.point(Core::kMul, d.elem(), {x, x}), Elem::kF32);
    return d.cast(d.point(Core::kMul, Elem::kF32, {two, d.cast(x, Elem::kF32)}), d.elem());
  }
  if (*exponent == 3) {
    return d.point(Core::kMul, d.elem(), {d.point(Core::kMul, d.elem(), {x, x}), x});
  }
  if (d.elem() == Elem::kF16) {
    return *exponent == -1 ? reciprocal(d) : d.fail();  // powers in the sense of C: of -inf, too
  }
  if (*exponent == 0.5) {
    return d.point(Core::kSqrt, d.elem(), {x});
  }
  if (*exponent == -0.5) {
    return rsqrt(d);
  }
  return *exponent == -1 ? reciprocal(d) : d.fail();
}

NodeId isNan(D& d) {
  const NodeId x = d.tensor(0);
  return !d.failed() && isFloat(d.node(x).elem) ? d.point(Core::kNe, Elem::kBool, {x, x}) : d.fail();
}

// Sums of several tensors have no bound (KTG_ACCURACY): for f32 and f64 they are ATen's in every bit, which
// tests/python/test_native_accuracy.py holds. Smaller floats ATen rounds in another way behind whole vectors.
NodeId addcmul(D& d) {
  const Elem elem = d.elem();
  if (!isFloat(elem)) {
    return d.fail();
  }
  const NodeId scaledDown = d.point(Core::kMul, elem, {d.as(3, elem, 1), d.as(1, elem)});
  return d.point(Core::kFma, elem, {scaledDown, d.as(2, elem), d.as(0, elem)});
}

NodeId addcdiv(D& d) {
  const Elem elem = d.elem();
  if (!isFloat(elem)) {
    return d.fail();
  }
  const NodeId above = d.point(Core::kMul, elem, {d.as(3, elem, 1), d.as(1, elem)});
  return d.point(Core::kAdd, elem, {d.as(0, elem), d.point(Core::kDiv, elem, {above, d.as(2, elem)})});
}

NodeId lerp(D& d) {
  const Elem elem = d.elem();
  const double weight = d.number(2, 0);
  if (!isFloat(elem) || !d.number(2)) {
    return d.fail();
  }
  const NodeId a = d.as(0, elem), b = d.as(1, elem);
  const NodeId way = d.point(Core::kSub, elem, {b, a});
  if (std::abs(weight) < 0.5) {
    return d.point(Core::kFma, elem, {d.constant(weight, elem), way, a});
  }
  return d.point(Core::kFma, elem, {d.constant(weight - 1, elem), way, b});
}

NodeId convert(D& d) { return d.as(0, d.elem()); }

NodeId convertOrCopy(D& d) {
  const NodeId x = d.as(0, d.elem());
  return d.flag(3) && !d.failed() ? d.point(Core::kCast, d.elem(), {x}) : x;
}

NodeId copy(D& d) { return d.point(Core::kCast, d.elem(), {d.as(0, d.elem())}); }

// What operators store that do not read what was there: of a shape that fits.
NodeId source(D& d) { return d.point(Core::kCast, d.elem(), {d.as(1, d.elem())}); }

NodeId zero(D& d) { return d.point(Core::kCast, d.elem(), {d.constant(0, d.elem())}); }

// Only where it does nothing.
NodeId dropout(D& d) { return d.count() > 2 && (!d.flag(2) || d.number(1, 1) == 0) ? d.tensor(0) : d.fail(); }

}  // namespace decompositions

}  // namespace kintsugi::passes
