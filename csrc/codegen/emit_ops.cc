#include "codegen/emit_ops.h"

#include <llvm/IR/Intrinsics.h>

#include <limits>

#include "codegen/half_floats.h"
#include "codegen/vector_math.h"
#include "support/check.h"
#include "support/target.h"

namespace kintsugi::codegen {

using llvm::Type;
using llvm::Value;
using passes::Core;
using passes::Elem;

namespace {

Type* widen(Type* element, unsigned lanes) {
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
}

unsigned lanesOf(Value* value) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 1 : vector->getNumElements();
}

llvm::Constant* integer(Value* like, uint64_t v) { return llvm::ConstantInt::get(like->getType(), v); }

// Rounds to nearest, ties to even. NaN stays NaN.
Value* roundToBFloat(Builder& b, Value* x) {
  Type* words = widen(b.getInt32Ty(), lanesOf(x));
  Value* bits = b.CreateBitCast(x, words);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, integer(bits, 16)), integer(bits, 1));
  Value* rounded =
      b.CreateLShr(b.CreateAdd(bits, b.CreateAdd(odd, integer(bits, 0x7fff))), integer(bits, 16));
  Value* nan = b.CreateFCmpUNO(x, x);
  return b.CreateTrunc(b.CreateSelect(nan, integer(bits, 0x7fc0), rounded),
                       widen(b.getInt16Ty(), lanesOf(x)));
}

// LLVM must not see through a conversion between types of floats: InstCombine moves it behind a select whose
// condition compares the number before it, and gives 0.0 for -0.0 there (seen with LLVM 19). Besides, what it
// turns into comparisons of f16 is computed element by element. The fence is no instruction.
Value* fenced(Builder& b, Value* x) { return b.CreateArithmeticFence(x, x->getType()); }

bool convertsHalves() { return levelInfo(target().machine.level).halves; }

Value* propagatingNan(Builder& b, bool max, Value* x, Value* y) {
  Value* chosen = max ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y);
  return b.CreateSelect(b.CreateOr(chosen, b.CreateFCmpUNO(x, x)), x, y);
}

Value* emitCast(Builder& b, Elem to, Elem from, Value* x) {
  Type* type = registerType(b, to, lanesOf(x));
  if (to == Elem::kBool) {
    Value* zero = llvm::Constant::getNullValue(x->getType());
    return from == Elem::kBool ? x : isFloat(from) ? b.CreateFCmpUNE(x, zero) : b.CreateICmpNE(x, zero);
  }
  if (isFloat(to)) {
    if (!isFloat(from)) {
      x = passes::isSigned(from) ? b.CreateSIToFP(x, type) : b.CreateUIToFP(x, type);
    } else {
      x = x->getType() == type ? x : fenced(b, b.CreateFPCast(x, type));
    }
    return passes::isSmallFloat(to) ? fromMemory(b, to, toMemory(b, to, x)) : x;
  }
  KINTSUGI_CHECK(!isFloat(from), "a cast from floats to integers");
  return b.CreateIntCast(x, type, passes::isSigned(from));
}

Value* emitCompare(Builder& b, Core op, Elem from, Value* x, Value* y) {
  using Predicate = llvm::CmpInst::Predicate;
  struct Row {
    Predicate floats, signedInts, unsignedInts;
  };
  static constexpr Row kRows[] = {
      {Predicate::FCMP_OEQ, Predicate::ICMP_EQ, Predicate::ICMP_EQ},
      {Predicate::FCMP_UNE, Predicate::ICMP_NE, Predicate::ICMP_NE},
      {Predicate::FCMP_OLT, Predicate::ICMP_SLT, Predicate::ICMP_ULT},
      {Predicate::FCMP_OLE, Predicate::ICMP_SLE, Predicate::ICMP_ULE},
      {Predicate::FCMP_OGT, Predicate::ICMP_SGT, Predicate::ICMP_UGT},
      {Predicate::FCMP_OGE, Predicate::ICMP_SGE, Predicate::ICMP_UGE},
  };
  const Row& row = kRows[static_cast<size_t>(op) - static_cast<size_t>(Core::kEq)];
  const bool isUnsigned = from == Elem::kU8 || from == Elem::kBool;
  return isFloat(from) ? b.CreateFCmp(row.floats, x, y)
                       : b.CreateICmp(isUnsigned ? row.unsignedInts : row.signedInts, x, y);
}

Value* emitFloat(Builder& b, Core op, std::span<Value* const> args) {
  Value* x = args[0];
  switch (op) {
    case Core::kAdd:
      return b.CreateFAdd(x, args[1]);
    case Core::kSub:
      return b.CreateFSub(x, args[1]);
    case Core::kMul:
      return b.CreateFMul(x, args[1]);
    case Core::kDiv:
      return b.CreateFDiv(x, args[1]);
    case Core::kMax:
    case Core::kMin:
      return propagatingNan(b, op == Core::kMax, x, args[1]);
    case Core::kFma:
      return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, args[1], args[2]});
    case Core::kNeg:
      return b.CreateFNeg(x);
    case Core::kAbs:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
    case Core::kSqrt:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    case Core::kFloor:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case Core::kCeil:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case Core::kTrunc:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
    case Core::kExp:
      return emitExp(b, x);
    case Core::kLog:
      return emitLog(b, x);
    case Core::kTanh:
      return emitTanh(b, x);
    case Core::kErf:
      return emitErf(b, x);
    default:
      KINTSUGI_UNREACHABLE("no float operation: ", passes::coreInfo(op).text);
  }
}

Value* emitInteger(Builder& b, Core op, bool isUnsigned, std::span<Value* const> args) {
  Value* x = args[0];
  switch (op) {
    case Core::kAdd:
      return b.CreateAdd(x, args[1]);
    case Core::kSub:
      return b.CreateSub(x, args[1]);
    case Core::kMul:
      return b.CreateMul(x, args[1]);
    case Core::kMax:
      return b.CreateBinaryIntrinsic(isUnsigned ? llvm::Intrinsic::umax : llvm::Intrinsic::smax, x, args[1]);
    case Core::kMin:
      return b.CreateBinaryIntrinsic(isUnsigned ? llvm::Intrinsic::umin : llvm::Intrinsic::smin, x, args[1]);
    case Core::kNeg:
      return b.CreateNeg(x);
    case Core::kAbs:
      return isUnsigned ? x : b.CreateIntrinsic(llvm::Intrinsic::abs, {x->getType()}, {x, b.getFalse()});
    default:
      KINTSUGI_UNREACHABLE("no integer operation: ", passes::coreInfo(op).text);
  }
}

}  // namespace

Type* registerType(Builder& b, Elem elem, unsigned lanes) {
  switch (elem) {
    case Elem::kBool:
      return widen(b.getInt1Ty(), lanes);
    case Elem::kU8:
    case Elem::kI8:
      return widen(b.getInt8Ty(), lanes);
    case Elem::kI16:
      return widen(b.getInt16Ty(), lanes);
    case Elem::kI32:
      return widen(b.getInt32Ty(), lanes);
    case Elem::kI64:
      return widen(b.getInt64Ty(), lanes);
    case Elem::kF64:
      return widen(b.getDoubleTy(), lanes);
    case Elem::kF16:
    case Elem::kBF16:
    case Elem::kF32:
      return widen(b.getFloatTy(), lanes);
    case Elem::kOther:
      break;
  }
  KINTSUGI_UNREACHABLE("an element type without code");
}

Type* memoryType(Builder& b, Elem elem, unsigned lanes) {
  switch (elem) {
    case Elem::kBool:
      return widen(b.getInt8Ty(), lanes);
    case Elem::kF16:
      return widen(convertsHalves() ? b.getHalfTy() : static_cast<Type*>(b.getInt16Ty()), lanes);
    case Elem::kBF16:
      return widen(b.getInt16Ty(), lanes);
    default:
      return registerType(b, elem, lanes);
  }
}

Value* fromMemory(Builder& b, Elem elem, Value* x) {
  switch (elem) {
    case Elem::kBool:
      return b.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType()));
    case Elem::kF16:
      return convertsHalves() ? fenced(b, b.CreateFPExt(x, widen(b.getFloatTy(), lanesOf(x))))
                              : floatOfHalf(b, x);
    case Elem::kBF16: {
      Value* wide = b.CreateZExt(x, widen(b.getInt32Ty(), lanesOf(x)));
      return b.CreateBitCast(b.CreateShl(wide, integer(wide, 16)), widen(b.getFloatTy(), lanesOf(x)));
    }
    default:
      return x;
  }
}

Value* toMemory(Builder& b, Elem elem, Value* x) {
  switch (elem) {
    case Elem::kBool:
      return b.CreateZExt(x, widen(b.getInt8Ty(), lanesOf(x)));
    case Elem::kF16:
      return convertsHalves() ? b.CreateFPTrunc(x, widen(b.getHalfTy(), lanesOf(x))) : halfOfFloat(b, x);
    case Elem::kBF16:
      return roundToBFloat(b, x);
    default:
      return x;
  }
}

Value* emitCore(Builder& b, Core op, Elem elem, Elem from, std::span<Value* const> args) {
  if (op == Core::kCast) {
    return emitCast(b, elem, from, args[0]);
  }
  if (op == Core::kSelect) {
    return b.CreateSelect(args[0], args[1], args[2]);
  }
  if (passes::isCompare(op)) {
    return emitCompare(b, op, from, args[0], args[1]);
  }
  if (op == Core::kAnd) {
    return b.CreateAnd(args[0], args[1]);
  }
  if (op == Core::kOr) {
    return b.CreateOr(args[0], args[1]);
  }
  if (op == Core::kNot) {
    return b.CreateNot(args[0]);
  }
  return isFloat(elem) ? emitFloat(b, op, args) : emitInteger(b, op, elem == Elem::kU8, args);
}

Value* emitConstant(Builder& b, Elem elem, double number, int64_t integerValue) {
  Type* type = registerType(b, elem, 1);
  return isFloat(elem) ? static_cast<Value*>(llvm::ConstantFP::get(type, number))
                       : llvm::ConstantInt::get(type, static_cast<uint64_t>(integerValue), true);
}

Value* reduceIdentity(Builder& b, Core op) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool most = op == Core::kReduceMax || op == Core::kReduceArgMax;
  const double number = op == Core::kReduceSum ? 0.0 : most ? -infinity : infinity;
  return llvm::ConstantFP::get(b.getFloatTy(), number);
}

Value* isBetter(Builder& b, Core op, Value* x, Value* y) {
  Value* beyond = op == Core::kReduceArgMax ? b.CreateFCmpUGT(x, y) : b.CreateFCmpULT(x, y);
  return b.CreateAnd(beyond, b.CreateFCmpORD(y, y));
}

Value* combine(Builder& b, Core op, Value* x, Value* y) {
  return op == Core::kReduceSum ? b.CreateFAdd(x, y) : propagatingNan(b, op == Core::kReduceMax, x, y);
}

// Transposes a square in registers. Each step exchanges one bit of the row's index with the same bit of the
// column's.
void transposeSquare(Builder& b, std::vector<Value*>& square) {
  const auto size = static_cast<unsigned>(square.size());
  for (unsigned bit = 1; bit < size; bit *= 2) {
    for (unsigned i = 0; i < size; ++i) {
      if ((i & bit) != 0) {
        continue;
      }
      std::vector<int> low, high;
      for (unsigned lane = 0; lane < size; ++lane) {
        const bool second = (lane & bit) != 0;
        low.push_back(static_cast<int>(second ? size + lane - bit : lane));
        high.push_back(static_cast<int>(second ? size + lane : lane + bit));
      }
      Value* first = square[i];
      Value* other = square[i + bit];
      square[i] = b.CreateShuffleVector(first, other, low);
      square[i + bit] = b.CreateShuffleVector(first, other, high);
    }
  }
}

llvm::Constant* laneNumbers(Builder& b, unsigned lanes) {
  std::vector<uint32_t> numbers(lanes);
  for (uint32_t k = 0; k < lanes; ++k) {
    numbers[k] = k;
  }
  return llvm::ConstantDataVector::get(b.getContext(), numbers);
}

llvm::Value* firstLanes(Builder& b, unsigned lanes, llvm::Value* count) {
  return b.CreateICmpULT(laneNumbers(b, lanes),
                         b.CreateVectorSplat(lanes, b.CreateTrunc(count, b.getInt32Ty())));
}

}  // namespace kintsugi::codegen
