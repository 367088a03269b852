#include "codegen/vector_math.h"

#include <llvm/IR/Intrinsics.h>

#include <initializer_list>
#include <limits>

#include "support/target.h"

namespace kintsugi::codegen {

namespace {

using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;
using Builder = llvm::IRBuilder<>;

Constant* number(Value* like, double value) { return ConstantFP::get(like->getType(), value); }

Type* intTypeOf(Builder& b, Value* x) {
  Type* element = b.getInt32Ty();
  auto* vector = llvm::dyn_cast<llvm::VectorType>(x->getType());
  return vector != nullptr ? llvm::VectorType::get(element, vector->getElementCount()) : element;
}

Type* doublesLike(Builder& b, Value* x) {
  auto* vector = llvm::dyn_cast<llvm::VectorType>(x->getType());
  Type* element = b.getDoubleTy();
  return vector != nullptr ? llvm::VectorType::get(element, vector->getElementCount()) : element;
}

Value* fma(Builder& b, Value* x, Value* y, Value* z) {
  return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {x->getType()}, {x, y, z});
}

// Horner's rule; the highest power first.
Value* polynomial(Builder& b, Value* x, std::initializer_list<double> coefficients) {
  Value* sum = nullptr;
  for (const double c : coefficients) {
    sum = sum == nullptr ? number(x, c) : fma(b, sum, x, number(x, c));
  }
  return sum;
}

// Combines pairs of terms by powers of x^2, so that half as many steps depend on each other.
Value* pairwise(Builder& b, Value* x, std::initializer_list<double> coefficients) {
  Value* square = b.CreateFMul(x, x);
  Value* sum = nullptr;
  auto c = coefficients.begin();
  if (coefficients.size() % 2 != 0) {
    sum = number(x, *c++);
  }
  for (; c != coefficients.end(); c += 2) {
    Value* pair = fma(b, x, number(x, c[0]), number(x, c[1]));
    sum = sum == nullptr ? pair : fma(b, sum, square, pair);
  }
  return sum;
}

Value* select(Builder& b, Value* condition, Value* yes, Value* no) {
  return b.CreateSelect(condition, yes, no);
}

// Leaves NaN as it is.
Value* atMost(Builder& b, Value* x, double bound) {
  return select(b, b.CreateFCmpOGT(x, number(x, bound)), number(x, bound), x);
}
Value* atLeast(Builder& b, Value* x, double bound) {
  return select(b, b.CreateFCmpOLT(x, number(x, bound)), number(x, bound), x);
}

Value* absolute(Builder& b, Value* x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
Value* withSignOf(Builder& b, Value* x, Value* sign) {
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign);
}

// 2^n, for n in the range of normal numbers.
Value* powerOfTwo(Builder& b, Value* n, Type* floats) {
  Type* ints = n->getType();
  Value* biased = b.CreateAdd(n, ConstantInt::get(ints, 127));
  return b.CreateBitCast(b.CreateShl(biased, ConstantInt::get(ints, 23)), floats);
}

// exp(r) = 1 + r + r^2 * (these, the highest power first). The coefficients, and those of log, are Cephes'.
constexpr std::initializer_list<double> kExpTerms = {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
                                                     4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1};

// x = n * ln 2 + r, n the nearest integer to x / ln 2.
struct Reduced {
  Value* magic;
  Value* shifted;  // magic + n, whose low bits are those of n
  Value* r;
};
Reduced reduceByLn2(Builder& b, Value* x) {
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits. (Converting NaN to an int would be
  // undefined.)
  Value* magic = number(x, 12582912.0);
  Value* shifted = fma(b, x, number(x, 1.44269504088896341), magic);
  Value* whole = b.CreateFSub(shifted, magic);
  Value* r = fma(b, whole, number(x, -0.693359375), x);
  return {magic, shifted, fma(b, whole, number(x, 2.12194440e-4), r)};
}

}  // namespace

// exp(x) = 2^n * exp(r), n the nearest integer to x / ln 2. The power is applied in two halves, so that the
// result may be subnormal or overflow.
Value* emitExp(Builder& b, Value* x) {
  Type* ints = intTypeOf(b, x);
  Value* bounded = atLeast(b, atMost(b, x, 100.0), -150.0);
  const auto [magic, shifted, r] = reduceByLn2(b, bounded);
  Value* n = b.CreateSub(b.CreateBitCast(shifted, ints), b.CreateBitCast(magic, ints));
  Value* p = pairwise(b, r, kExpTerms);
  Value* y = fma(b, p, b.CreateFMul(r, r), b.CreateFAdd(r, number(x, 1.0)));
  Value* half = b.CreateAShr(n, ConstantInt::get(ints, 1));
  y = b.CreateFMul(y, powerOfTwo(b, half, x->getType()));
  return b.CreateFMul(y, powerOfTwo(b, b.CreateSub(n, half), x->getType()));
}

// As emitExp(), with a single power of two, which is added to the exponent. Only for x <= 0.
Value* emitExpOfNegative(Builder& b, Value* x) {
  Type* ints = intTypeOf(b, x);
  const auto [magic, shifted, r] = reduceByLn2(b, x);
  Value* p = polynomial(b, r, kExpTerms);
  Value* y = fma(b, p, b.CreateFMul(r, r), b.CreateFAdd(r, number(x, 1.0)));
  Value* power = b.CreateShl(b.CreateBitCast(shifted, ints), ConstantInt::get(ints, 23));
  y = b.CreateBitCast(b.CreateAdd(b.CreateBitCast(y, ints), power), x->getType());
  // NaN stays NaN: adding to its exponent could turn it into something else.
  Value* tiny = b.CreateFCmpOLT(x, number(x, -87.0));
  y = select(b, tiny, number(x, 0.0), y);
  return select(b, b.CreateFCmpUNO(x, x), x, y);
}

// log(m * 2^e) = log(m) + e * ln 2 with m in [sqrt(1/2), sqrt(2)).
Value* emitLog(Builder& b, Value* x) {
  Type* ints = intTypeOf(b, x);
  Type* floats = x->getType();
  auto integer = [ints](int64_t v) { return ConstantInt::get(ints, static_cast<uint64_t>(v), true); };
  Value* tiny = b.CreateFCmpOLT(x, number(x, 1.17549435e-38));
  Value* normal = select(b, tiny, b.CreateFMul(x, number(x, 8388608.0)), x);
  Value* bits = b.CreateBitCast(normal, ints);
  Value* e = b.CreateSub(b.CreateLShr(bits, integer(23)), integer(126));
  e = b.CreateSub(e, select(b, tiny, integer(23), integer(0)));
  Value* mantissa = b.CreateOr(b.CreateAnd(bits, integer(0x7fffff)), integer(0x3f000000));
  Value* m = b.CreateBitCast(mantissa, floats);
  Value* small = b.CreateFCmpOLT(m, number(x, 0.707106781186547524));
  e = b.CreateSub(e, select(b, small, integer(1), integer(0)));
  m = b.CreateFSub(b.CreateFAdd(m, select(b, small, m, number(x, 0.0))), number(x, 1.0));
  Value* exponent = b.CreateSIToFP(e, floats);
  Value* square = b.CreateFMul(m, m);
  Value* p =
      polynomial(b, m,
                 {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                  -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value* y = b.CreateFMul(b.CreateFMul(p, m), square);
  y = fma(b, exponent, number(x, -2.12194440e-4), y);
  y = fma(b, square, number(x, -0.5), y);
  y = fma(b, exponent, number(x, 0.693359375), b.CreateFAdd(m, y));
  const double infinity = std::numeric_limits<double>::infinity();
  y = select(b, b.CreateFCmpOEQ(x, number(x, infinity)), x, y);
  y = select(b, b.CreateFCmpOEQ(x, number(x, 0.0)), number(x, -infinity), y);
  Value* bad = b.CreateFCmpULT(x, number(x, 0.0));  // negative or NaN
  return select(b, bad, number(x, std::numeric_limits<double>::quiet_NaN()), y);
}

// -m / (m + 2) with m = exp(-2|x|) - 1 = 2^n * (exp(r) - 1) + (2^n - 1), with the sign of x. For small x, n
// is 0, and the difference loses no digits.
Value* emitTanh(Builder& b, Value* x) {
  Type* ints = intTypeOf(b, x);
  Value* a = atMost(b, absolute(b, x), 10.0);  // beyond this the result is 1
  const auto [magic, shifted, r] = reduceByLn2(b, b.CreateFMul(a, number(x, -2.0)));
  Value* n = b.CreateSub(b.CreateBitCast(shifted, ints), b.CreateBitCast(magic, ints));
  Value* p = fma(b, pairwise(b, r, kExpTerms), b.CreateFMul(r, r), r);
  Value* power = powerOfTwo(b, n, x->getType());
  Value* m = fma(b, p, power, b.CreateFSub(power, number(x, 1.0)));
  return withSignOf(b, b.CreateFDiv(m, b.CreateFAdd(m, number(x, 2.0))), x);
}

// A rational function of x^2, times x, with the coefficients that Eigen and XLA have. Beyond the bound, erf
// is 1 as a float.
Value* emitErf(Builder& b, Value* x) {
  Value* bounded = atLeast(b, atMost(b, x, 3.832506856900711), -3.832506856900711);
  // Without fused multiply-add, the polynomials' rounding errors would be too large, so they are computed in
  // doubles.
  const bool wide = !levelInfo(target().machine.level).fma;
  Value* exact = wide ? b.CreateFPExt(bounded, doublesLike(b, x)) : bounded;
  Value* square = b.CreateFMul(exact, exact);
  Value* p = pairwise(b, square,
                      {0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861,
                       0.18520832239976145, 1.128379143519084});
  Value* q = pairwise(b, square,
                      {-1.1791602954361697e-7, 0.000023547966471313185, 0.0010179625278914885,
                       0.014070470171167667, 0.11098505178285362, 0.49746925110067538, 1.0});
  p = wide ? b.CreateFPTrunc(p, x->getType()) : p;
  q = wide ? b.CreateFPTrunc(q, x->getType()) : q;
  return atLeast(b, atMost(b, b.CreateFDiv(b.CreateFMul(bounded, p), q), 1.0), -1.0);
}

}  // namespace kintsugi::codegen
