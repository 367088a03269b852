#include "codegen/emit_take.h"

namespace kintsugi::codegen {

using llvm::Value;

Value* emitLookup(Builder& b, const Lookup& lookup) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(lookup.places->getType());
  const unsigned lanes = vector == nullptr ? 1 : vector->getNumElements();
  const auto spread = [&](Value* number) { return lanes == 1 ? number : b.CreateVectorSplat(lanes, number); };
  Value* at = b.CreateIntCast(lookup.places, registerType(b, passes::Elem::kI64, lanes), true);
  Value* zero = llvm::Constant::getNullValue(at->getType());
  Value* count = spread(lookup.count);
  if (lookup.wraps) {
    at = b.CreateSelect(b.CreateICmpSLT(at, zero), b.CreateAdd(at, count), at);
  }
  Value* inside = b.CreateICmpULT(at, count);
  Value* missing = b.CreateNot(inside);
  missing = lookup.mask != nullptr && lanes != 1 ? b.CreateAnd(missing, lookup.mask) : missing;
  missing = lanes == 1 ? missing : b.CreateOrReduce(missing);
  Value* before = b.CreateLoad(b.getInt1Ty(), lookup.outside);
  b.CreateStore(b.CreateOr(before, missing), lookup.outside);
  return b.CreateMul(b.CreateSelect(inside, at, zero), spread(lookup.step));
}

}  // namespace kintsugi::codegen
