// Scalar instructions: Python's semantics on 64-bit integers and doubles. Where Python would raise, or use
// more bits, the trace is left and Python does it.
#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

#include "runtime/replay_program.h"
#include "support/check.h"
#include "support/exact_compare.h"
#include "support/python_power.h"

namespace kintsugi::runtime {

namespace {

using ir::Op;
using ir::Operand;
using ir::OperandKind;
using torchapi::Value;
using torchapi::ValueKind;

Value read(const Operand& operand, const Value* values) {
  Value out;
  switch (operand.kind) {
    case OperandKind::kValue:
      return values[operand.id];
    case OperandKind::kInt:
      out.kind = ValueKind::kInt;
      out.i = operand.i;
      return out;
    case OperandKind::kBool:
      out.kind = ValueKind::kBool;
      out.i = operand.i;
      return out;
    case OperandKind::kFloat:
      out.kind = ValueKind::kFloat;
      out.f = operand.f;
      return out;
    default:
      return out;
  }
}

bool isInteger(const Value& v) { return v.kind == ValueKind::kInt || v.kind == ValueKind::kBool; }
bool isNumber(const Value& v) { return isInteger(v) || v.kind == ValueKind::kFloat; }
double toDouble(const Value& v) { return isInteger(v) ? static_cast<double>(v.i) : v.f; }
bool isExactDouble(const Value& v) {
  constexpr int64_t kLimit = int64_t{1} << 53;
  return !isInteger(v) || (v.i <= kLimit && v.i >= -kLimit);
}

void setInt(Value& out, int64_t i) {
  out.kind = ValueKind::kInt;
  out.i = i;
}
void setFloat(Value& out, double f) {
  out.kind = ValueKind::kFloat;
  out.f = f;
}
void setBool(Value& out, bool b) {
  out.kind = ValueKind::kBool;
  out.i = b ? 1 : 0;
}

// How an int and a float compare, as a number to be compared with 0; NaN if the float is.
double signOf(std::partial_ordering order) {
  return order < 0 ? -1 : order > 0 ? 1 : order == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
}

template <typename Compare>
bool compare(const Value& a, const Value& b, Compare&& holds) {
  if (isInteger(a) && isInteger(b)) {
    return holds(a.i, b.i);
  }
  if (isInteger(a)) {
    return holds(signOf(compareExactly(a.i, b.f)), 0.0);
  }
  if (isInteger(b)) {
    return holds(0.0, signOf(compareExactly(b.i, a.f)));
  }
  return holds(a.f, b.f);
}

bool floorDivMod(int64_t a, int64_t b, int64_t& quotient, int64_t& remainder) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1)) {
    return false;
  }
  quotient = a / b;
  remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return true;
}

bool runInteger(Op op, const Value& a, const Value& b, Value& out) {
  int64_t result = 0, other = 0;
  bool ok = isInteger(a) && (op == Op::kIntNeg || isInteger(b));
  switch (op) {
    case Op::kIntAdd:
      ok = ok && !__builtin_add_overflow(a.i, b.i, &result);
      break;
    case Op::kIntSub:
      ok = ok && !__builtin_sub_overflow(a.i, b.i, &result);
      break;
    case Op::kIntMul:
      ok = ok && !__builtin_mul_overflow(a.i, b.i, &result);
      break;
    case Op::kIntNeg:
      ok = ok && !__builtin_sub_overflow(int64_t{0}, a.i, &result);
      break;
    case Op::kIntFloorDiv:
      ok = ok && floorDivMod(a.i, b.i, result, other);
      break;
    default:
      ok = ok && floorDivMod(a.i, b.i, other, result);
      break;
  }
  setInt(out, result);
  return ok;
}

bool runFloat(Op op, const Value& a, const Value& b, Value& out) {
  if (!isNumber(a) || (op != Op::kFloatNeg && !isNumber(b))) {
    return false;
  }
  const double x = toDouble(a);
  const double y = toDouble(b);
  switch (op) {
    case Op::kFloatAdd:
      setFloat(out, x + y);
      return true;
    case Op::kFloatSub:
      setFloat(out, x - y);
      return true;
    case Op::kFloatMul:
      setFloat(out, x * y);
      return true;
    case Op::kFloatTrueDiv:
      setFloat(out, x / y);
      // Two large integers are divided with more bits than a double has.
      return y != 0 && isExactDouble(a) && isExactDouble(b);
    case Op::kFloatPow: {
      const std::optional<double> power = pythonPower(x, y);
      setFloat(out, power.value_or(0));
      return power.has_value();
    }
    default:
      setFloat(out, -x);
      return true;
  }
}

bool convert(Op op, const Value& a, Value& out) {
  if (!isNumber(a)) {
    return false;
  }
  switch (op) {
    case Op::kToFloat:
      setFloat(out, toDouble(a));
      return true;
    case Op::kToBool:
      setBool(out, isInteger(a) ? a.i != 0 : a.f != 0);
      return true;
    default:
      if (isInteger(a)) {
        setInt(out, a.i);
        return true;
      }
      // NaN fails the comparison as well.
      if (!(a.f > -9223372036854775808.0 && a.f < 9223372036854775808.0)) {
        return false;
      }
      setInt(out, static_cast<int64_t>(a.f));
      return true;
  }
}

bool runComparison(Op op, const Value& a, const Value& b, Value& out) {
  if (!isNumber(a) || !isNumber(b)) {
    return false;
  }
  bool result = false;
  switch (op) {
    case Op::kNumEq:
      result = compare(a, b, [](auto x, auto y) { return x == y; });
      break;
    case Op::kNumNe:
      result = compare(a, b, [](auto x, auto y) { return x != y; });
      break;
    case Op::kNumLt:
      result = compare(a, b, [](auto x, auto y) { return x < y; });
      break;
    case Op::kNumLe:
      result = compare(a, b, [](auto x, auto y) { return x <= y; });
      break;
    case Op::kNumGt:
      result = compare(a, b, [](auto x, auto y) { return x > y; });
      break;
    default:
      result = compare(a, b, [](auto x, auto y) { return x >= y; });
      break;
  }
  setBool(out, result);
  return true;
}

bool runMetadata(Op op, const Value& tensor, const Value& dim, Value& out) {
  if (tensor.kind != ValueKind::kTensor) {
    return false;
  }
  switch (op) {
    case Op::kNumel:
      setInt(out, torchapi::tensorNumel(tensor.tensor));
      return true;
    case Op::kDim:
      setInt(out, torchapi::tensorDim(tensor.tensor));
      return true;
    default:
      break;
  }
  const int64_t rank = torchapi::tensorDim(tensor.tensor);
  const int64_t d = dim.i < 0 ? dim.i + rank : dim.i;
  if (!isInteger(dim) || d < 0 || d >= rank) {
    return false;
  }
  setInt(out,
         op == Op::kSize ? torchapi::tensorSize(tensor.tensor, d) : torchapi::tensorStride(tensor.tensor, d));
  return true;
}

}  // namespace

bool isScalarOp(Op op) { return op >= Op::kSize && op <= Op::kNot; }

bool runScalar(const ir::Trace& trace, const ir::Instruction& ins, Value* values) {
  const auto operands = trace.operandsOf(ins);
  const Value a = read(operands[0], values);
  const Value b = operands.size() > 1 ? read(operands[1], values) : Value();
  Value& out = values[ins.firstResult];
  switch (ins.op) {
    case Op::kSize:
    case Op::kStride:
    case Op::kNumel:
    case Op::kDim:
      return runMetadata(ins.op, a, b, out);
    case Op::kIntAdd:
    case Op::kIntSub:
    case Op::kIntMul:
    case Op::kIntFloorDiv:
    case Op::kIntMod:
    case Op::kIntNeg:
      return runInteger(ins.op, a, b, out);
    case Op::kFloatAdd:
    case Op::kFloatSub:
    case Op::kFloatMul:
    case Op::kFloatTrueDiv:
    case Op::kFloatPow:
    case Op::kFloatNeg:
      return runFloat(ins.op, a, b, out);
    case Op::kToFloat:
    case Op::kToInt:
    case Op::kToBool:
      return convert(ins.op, a, out);
    case Op::kNumEq:
    case Op::kNumNe:
    case Op::kNumLt:
    case Op::kNumLe:
    case Op::kNumGt:
    case Op::kNumGe:
      return runComparison(ins.op, a, b, out);
    case Op::kNot:
      setBool(out, a.i == 0);
      return a.kind == ValueKind::kBool;
    default:
      break;
  }
  KINTSUGI_UNREACHABLE("no scalar instruction: ", ir::opInfo(ins.op).text);
}

}  // namespace kintsugi::runtime
