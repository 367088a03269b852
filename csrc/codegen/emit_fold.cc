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

Value* foldIndices(Builder& b, Core op, Value* value, Value* index) {
  for (unsigned width = lanesOf(value); width > 1; width /= 2) {
    Value* low = halfOf(b, value, width, false);
    Value* high = halfOf(b, value, width, true);
    Value* lowIndex = halfOf(b, index, width, false);
    Value* highIndex = halfOf(b, index, width, true);
    // Of equal elements, and of two NaN, the one with the smaller index wins.
    Value* bothNan = b.CreateAnd(b.CreateFCmpUNO(low, low), b.CreateFCmpUNO(high, high));
    Value* isFirst =
        b.CreateAnd(b.CreateOr(b.CreateFCmpOEQ(low, high), bothNan), b.CreateICmpULT(highIndex, lowIndex));
    Value* better = b.CreateOr(isBetter(b, op, high, low), isFirst);
    value = b.CreateSelect(better, high, low);
    index = b.CreateSelect(better, highIndex, lowIndex);
  }
  return b.CreateExtractElement(index, uint64_t{0});
}

Value* foldLanes(Builder& b, Core op, Value* vector) {
  for (unsigned width = lanesOf(vector); width > 1; width /= 2) {
    vector = combine(b, op, halfOf(b, vector, width, false), halfOf(b, vector, width, true));
  }
  return b.CreateExtractElement(vector, uint64_t{0});
}

}  // namespace kintsugi::codegen
