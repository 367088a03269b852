#include "codegen/emit_transpose.h"

#include <functional>

#include "codegen/emit_product.h"

namespace kintsugi::codegen {

using llvm::BasicBlock;
using llvm::Value;

void emitTranspose(Builder& b, llvm::Function* function, const Target& target,
                   const TransposeBlock& transposed, Value* from, Value* to, Value* count) {
  const unsigned side = target.transposeSquare;
  const auto integer = [&b](int64_t v) { return b.getInt64(static_cast<uint64_t>(v)); };
  const auto block = [&](const char* name) { return BasicBlock::Create(b.getContext(), name, function); };
  const auto loop = [&](Value* low, Value* high, int64_t step, const std::function<void(Value*)>& visit) {
    emitLoop(b, function, low, high, step, visit);
  };
  const auto loadAt = [&](Value* j, unsigned first, unsigned lanes, bool part) -> Value* {
    Value* address = b.CreateGEP(b.getFloatTy(), transposed.base,
                                 b.CreateAdd(b.CreateMul(j, transposed.stride), integer(first)));
    auto* type = llvm::FixedVectorType::get(b.getFloatTy(), lanes);
    if (!part) {
      return b.CreateAlignedLoad(type, address, llvm::Align(4));
    }
    Value* left = b.CreateSub(count, integer(first));
    left = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, integer(0));
    return b.CreateMaskedLoad(type, address, llvm::Align(4), firstLanes(b, lanes, left),
                              llvm::Constant::getNullValue(type));
  };
  const auto placeOf = [&](Value* j, unsigned row) {
    return b.CreateGEP(b.getFloatTy(), transposed.room,
                       b.CreateAdd(b.CreateSub(j, from), integer(row * target.transposeColumns)));
  };
  Value* squares = b.CreateAnd(b.CreateSub(to, from), integer(-int64_t{side}));
  squares = b.CreateAdd(from, squares);
  const auto move = [&](bool part) {
    loop(from, squares, side, [&](Value* j) {
      for (unsigned first = 0; first < target.transposeRows; first += side) {
        std::vector<Value*> square;
        for (unsigned k = 0; k < side; ++k) {
          square.push_back(loadAt(b.CreateAdd(j, integer(k)), first, side, part));
        }
        transposeSquare(b, square);
        for (unsigned k = 0; k < side; ++k) {
          b.CreateAlignedStore(square[k], placeOf(j, first + k), llvm::Align(4 * side));
        }
      }
    });
  };
  BasicBlock* whole = block("whole");
  BasicBlock* part = block("part");
  BasicBlock* after = block("turned");
  b.CreateCondBr(b.CreateICmpEQ(count, integer(target.transposeRows)), whole, part);
  b.SetInsertPoint(whole);
  move(false);
  b.CreateBr(after);
  b.SetInsertPoint(part);
  move(true);
  b.CreateBr(after);
  b.SetInsertPoint(after);
  loop(squares, to, 1, [&](Value* j) {
    Value* x = loadAt(j, 0, target.transposeRows, true);
    for (unsigned k = 0; k < target.transposeRows; ++k) {
      b.CreateAlignedStore(b.CreateExtractElement(x, uint64_t{k}), placeOf(j, k), llvm::Align(4));
    }
  });
}

}  // namespace kintsugi::codegen
