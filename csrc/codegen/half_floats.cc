#include "codegen/half_floats.h"

namespace kintsugi::codegen {

using llvm::Value;

namespace {

// A type with as many lanes and another element type.
llvm::Type* withElement(llvm::Type* like, llvm::Type* element) {
  auto* vector = llvm::dyn_cast<llvm::VectorType>(like);
  return vector != nullptr ? llvm::VectorType::get(element, vector->getElementCount()) : element;
}

llvm::Constant* word(Value* like, uint64_t v) { return llvm::ConstantInt::get(like->getType(), v); }

// 0.5. Its lowest mantissa bit has the value of the smallest subnormal f16, so adding 0.5 moves a subnormal's
// bits into the low bits, and rounds.
constexpr uint64_t kHalf = 0x3f000000;
constexpr uint64_t kExponentShift = 112;  // 127 - 15

}  // namespace

Value* floatOfHalf(Builder& b, Value* x) {
  llvm::Type* floats = withElement(x->getType(), b.getFloatTy());
  llvm::Type* words = withElement(x->getType(), b.getInt32Ty());
  Value* bits = b.CreateZExt(x, words);
  Value* size = b.CreateAnd(bits, word(bits, 0x7fff));
  Value* sign = b.CreateShl(b.CreateAnd(bits, word(bits, 0x8000)), word(bits, 16));
  Value* shifted = b.CreateShl(size, word(bits, 13));
  Value* normal = b.CreateAdd(shifted, word(bits, kExponentShift << 23));
  Value* infinite = b.CreateAdd(shifted, word(bits, 2 * kExponentShift << 23));
  Value* quiet = b.CreateOr(infinite, word(bits, 0x400000));
  Value* tiny = b.CreateBitCast(b.CreateOr(size, word(bits, kHalf)), floats);
  tiny = b.CreateBitCast(b.CreateFSub(tiny, llvm::ConstantFP::get(floats, 0.5)), words);
  Value* out = b.CreateSelect(b.CreateICmpULT(size, word(bits, 0x400)), tiny, normal);
  out = b.CreateSelect(b.CreateICmpUGE(size, word(bits, 0x7c00)), infinite, out);
  out = b.CreateSelect(b.CreateICmpUGT(size, word(bits, 0x7c00)), quiet, out);
  return b.CreateBitCast(b.CreateOr(out, sign), floats);
}

Value* halfOfFloat(Builder& b, Value* x) {
  llvm::Type* words = withElement(x->getType(), b.getInt32Ty());
  Value* bits = b.CreateBitCast(x, words);
  Value* size = b.CreateAnd(bits, word(bits, 0x7fffffff));
  Value* sign = b.CreateAnd(b.CreateLShr(bits, word(bits, 16)), word(bits, 0x8000));
  Value* odd = b.CreateAnd(b.CreateLShr(size, word(bits, 13)), word(bits, 1));
  Value* normal = b.CreateLShr(b.CreateAdd(size, b.CreateAdd(odd, word(bits, 0xfff))), word(bits, 13));
  normal = b.CreateSub(normal, word(bits, kExponentShift << 10));
  Value* tiny = b.CreateFAdd(b.CreateBitCast(size, x->getType()), llvm::ConstantFP::get(x->getType(), 0.5));
  tiny = b.CreateSub(b.CreateBitCast(tiny, words), word(bits, kHalf));
  Value* nan = b.CreateAnd(b.CreateLShr(size, word(bits, 13)), word(bits, 0x3ff));
  nan = b.CreateOr(nan, word(bits, 0x7e00));
  Value* out = b.CreateSelect(b.CreateICmpULT(size, word(bits, 0x38800000)), tiny, normal);      // 2^-14
  out = b.CreateSelect(b.CreateICmpUGE(size, word(bits, 0x47800000)), word(bits, 0x7c00), out);  // 2^16
  out = b.CreateSelect(b.CreateICmpUGT(size, word(bits, 0x7f800000)), nan, out);
  return b.CreateTrunc(b.CreateOr(out, sign), withElement(x->getType(), b.getInt16Ty()));
}

}  // namespace kintsugi::codegen
