#include "codegen/emit_fold.h"

namespace kintsugi::codegen {

using llvm::Value;
using passes::Core;

namespace {

unsigned lanesOf(Value* vector) {
  return llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements();
}

Value* halfOf(Builder& b, Value* vector, unsigned width, bool upper) {
  std::vector<int> chosen;
  for (unsigned k = 0; k < width / 2; ++k) {
    chosen.push_back(static_cast<int>(upper ? k + width / 2 : k));
  }
  return b.CreateShuffleVector(vector, chosen);
}

}  // namespace

Value* foldPlaces(Builder& b, Core op, Value* value, Value* place) {
  for (unsigned width = lanesOf(value); width > 1; width /= 2) {
    Value* low = halfOf(b, value, width, false);
    Value* high = halfOf(b, value, width, true);
    Value* lowPlace = halfOf(b, place, width, false);
    Value* highPlace = halfOf(b, place, width, true);
    Value* nans = b.CreateAnd(b.CreateFCmpUNO(low, low), b.CreateFCmpUNO(high, high));
    Value* first =
        b.CreateAnd(b.CreateOr(b.CreateFCmpOEQ(low, high), nans), b.CreateICmpULT(highPlace, lowPlace));
    Value* better = b.CreateOr(isBetter(b, op, high, low), first);
    value = b.CreateSelect(better, high, low);
    place = b.CreateSelect(better, highPlace, lowPlace);
  }
  return b.CreateExtractElement(place, uint64_t{0});
}

Value* foldLanes(Builder& b, Core op, Value* vector) {
  for (unsigned width = lanesOf(vector); width > 1; width /= 2) {
    vector = combine(b, op, halfOf(b, vector, width, false), halfOf(b, vector, width, true));
  }
  return b.CreateExtractElement(vector, uint64_t{0});
}

}  // namespace kintsugi::codegen
