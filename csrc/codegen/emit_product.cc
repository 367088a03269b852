#include "codegen/emit_product.h"

#include <algorithm>

#include "passes/kernel.h"
#include "support/target.h"

namespace kintsugi::codegen {

using llvm::BasicBlock;
using llvm::Value;

llvm::Align lineAlignment(unsigned lanes) {
  return llvm::Align(std::max<uint64_t>(target().machine.lineBytes, uint64_t{4} * lanes));
}

void emitLoop(Builder& b, llvm::Function* function, Value* from, Value* to, int64_t step,
              const std::function<void(Value*)>& body) {
  BasicBlock* before = b.GetInsertBlock();
  BasicBlock* head = BasicBlock::Create(b.getContext(), "loop", function);
  BasicBlock* after = BasicBlock::Create(b.getContext(), "after", function);
  b.CreateCondBr(b.CreateICmpSLT(from, to), head, after);
  b.SetInsertPoint(head);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  i->addIncoming(from, before);
  body(i);
  Value* next = b.CreateAdd(i, b.getInt64(static_cast<uint64_t>(step)), "", true, true);
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, to), head, after);
  b.SetInsertPoint(after);
}

ProductEmitter::ProductEmitter(Builder& b, llvm::Function* function, const TileShape& tile,
                               const ProductOperands& operands, Value* chunk)
    : b_(b), function_(function), tile_(tile), operands_(operands) {
  auto room = [&](Value* count) {
    llvm::AllocaInst* made = b_.CreateAlloca(b_.getFloatTy(), count);
    made->setAlignment(lineAlignment(tile_.lanes));
    return made;
  };
  panel_ = room(integer(passes::KernelProduct::kMaxDepth * tile_.columns()));
  // Tiles are always complete: the last one of a chunk may compute rows that nobody uses.
  sums_ = room(b_.CreateMul(b_.CreateAdd(chunk, integer(tile_.rows)), integer(tile_.columns())));
}

BasicBlock* ProductEmitter::block(const char* name) {
  return BasicBlock::Create(b_.getContext(), name, function_);
}

void ProductEmitter::emitPanel(Value* first, Value* count, Value* column) {
  Value* k = operands_.k;
  // for (from = 0; from < k; from += depth): the step varies.
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* head = block("depth");
  BasicBlock* after = block("panel");
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* from = b_.CreatePHI(b_.getInt64Ty(), 2);
  from->addIncoming(integer(0), before);
  Value* next = b_.CreateAdd(from, operands_.depth);
  Value* length = b_.CreateSub(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, next, k), from);
  if (operands_.rightByColumns) {
    packColumns(column, from, length);
  } else {
    packRows(column, from, length);
  }
  emitLoop(b_, function_, integer(0), count, tile_.rows, [&](Value* row) {
    Value* rest = b_.CreateSub(count, row);
    BasicBlock* whole = block("tile");
    BasicBlock* half = block("half");
    BasicBlock* done = block("tiled");
    b_.CreateCondBr(b_.CreateICmpSGT(rest, integer(tile_.rows / 2)), whole, half);
    b_.SetInsertPoint(whole);
    emitTile(tile_.rows, row, first, rest, from, length);
    b_.CreateBr(done);
    b_.SetInsertPoint(half);
    emitTile(tile_.rows / 2, row, first, rest, from, length);
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  });
  from->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, k), head, after);
  b_.SetInsertPoint(after);
}

void ProductEmitter::packRows(Value* column, Value* from, Value* length) {
  Value* width = b_.CreateSub(operands_.n, column);
  Value* source = at(operands_.right, b_.CreateAdd(b_.CreateMul(from, operands_.rightStride), column));
  auto copy = [&](bool part) {
    emitLoop(b_, function_, integer(0), length, 1, [&](Value* p) {
      for (unsigned v = 0; v < tile_.vectors; ++v) {
        Value* place = integer(v * tile_.lanes);
        Value* address = at(source, b_.CreateAdd(b_.CreateMul(p, operands_.rightStride), place));
        Value* x = nullptr;
        if (part) {
          Value* left =
              b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b_.CreateSub(width, place), integer(0));
          x = b_.CreateMaskedLoad(vectors(tile_.lanes), address, llvm::Align(4),
                                  firstLanes(b_, tile_.lanes, left),
                                  llvm::Constant::getNullValue(vectors(tile_.lanes)));
        } else {
          x = b_.CreateAlignedLoad(vectors(tile_.lanes), address, llvm::Align(4));
        }
        Value* to = at(panel_, b_.CreateAdd(b_.CreateMul(p, integer(tile_.columns())), place));
        b_.CreateAlignedStore(x, to, llvm::Align(tile_.lanes * 4));
      }
    });
  };
  BasicBlock* whole = block("whole");
  BasicBlock* part = block("part");
  BasicBlock* done = block("packed");
  b_.CreateCondBr(b_.CreateICmpSGE(width, integer(tile_.columns())), whole, part);
  b_.SetInsertPoint(whole);
  copy(false);
  b_.CreateBr(done);
  b_.SetInsertPoint(part);
  copy(true);
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

// Packs a few columns at a time; each is read along its memory, cache line by cache line. Columns past the
// end are copies of the last one. Whole groups of such columns are not filled, since their sums are not used.
void ProductEmitter::packColumns(Value* column, Value* from, Value* length) {
  const unsigned square = tile_.square;
  Value* squares = b_.CreateAnd(length, integer(-static_cast<int64_t>(square)));
  Value* width = b_.CreateSub(operands_.n, column);
  Value* last = b_.CreateSub(width, integer(1));
  width = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, width, integer(tile_.columns()));
  Value* source = at(operands_.right, b_.CreateAdd(b_.CreateMul(column, operands_.rightStride), from));
  emitLoop(b_, function_, integer(0), width, square, [&](Value* group) {
    std::vector<Value*> columns;
    for (unsigned i = 0; i < square; ++i) {
      Value* which = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(group, integer(i)), last);
      columns.push_back(at(source, b_.CreateMul(which, operands_.rightStride)));
    }
    auto placeOf = [&](Value* p) {
      return at(panel_, b_.CreateAdd(b_.CreateMul(p, integer(tile_.columns())), group));
    };
    emitLoop(b_, function_, integer(0), squares, square, [&](Value* p) {
      std::vector<Value*> rows;
      for (Value* address : columns) {
        rows.push_back(b_.CreateAlignedLoad(vectors(square), at(address, p), llvm::Align(4)));
      }
      transposeSquare(b_, rows);
      for (unsigned i = 0; i < square; ++i) {
        b_.CreateAlignedStore(rows[i], placeOf(b_.CreateAdd(p, integer(i))), llvm::Align(4 * square));
      }
    });
    emitLoop(b_, function_, squares, length, 1, [&](Value* p) {
      Value* place = placeOf(p);
      for (unsigned i = 0; i < square; ++i) {
        Value* x = b_.CreateAlignedLoad(b_.getFloatTy(), at(columns[i], p), llvm::Align(4));
        b_.CreateAlignedStore(x, at(place, integer(i)), llvm::Align(4));
      }
    });
  });
}

Value* ProductEmitter::sumsAt(Value* row, unsigned r, unsigned v) {
  Value* index = b_.CreateMul(b_.CreateAdd(row, integer(r)), integer(tile_.columns()));
  return at(sums_, b_.CreateAdd(index, integer(v * tile_.lanes)));
}

// Starts with zeros, or with the sums of earlier parts of k.
void ProductEmitter::loadSums(std::vector<Value*>& sums, Value* row, unsigned rows, Value* from) {
  BasicBlock* start = b_.GetInsertBlock();
  BasicBlock* again = block("again");
  BasicBlock* done = block("sums");
  b_.CreateCondBr(b_.CreateICmpEQ(from, integer(0)), done, again);
  b_.SetInsertPoint(again);
  std::vector<Value*> before;
  for (unsigned r = 0; r < rows; ++r) {
    for (unsigned v = 0; v < tile_.vectors; ++v) {
      before.push_back(
          b_.CreateAlignedLoad(vectors(tile_.lanes), sumsAt(row, r, v), llvm::Align(tile_.lanes * 4)));
    }
  }
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  for (Value* value : before) {
    llvm::PHINode* sum = b_.CreatePHI(vectors(tile_.lanes), 2);
    sum->addIncoming(llvm::Constant::getNullValue(vectors(tile_.lanes)), start);
    sum->addIncoming(value, again);
    sums.push_back(sum);
  }
}

// Computes rows [row, row + rows) of the chunk that begins at `first`. `rest` rows are left; past the end,
// the last row is used again.
void ProductEmitter::emitTile(unsigned rows, Value* row, Value* first, Value* rest, Value* from,
                              Value* length) {
  std::vector<Value*> left;
  Value* last = b_.CreateSub(rest, integer(1));
  for (unsigned r = 0; r < rows; ++r) {
    Value* which = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, integer(r), last);
    which = b_.CreateAdd(b_.CreateAdd(first, row), which);
    left.push_back(at(operands_.left, b_.CreateAdd(b_.CreateMul(which, operands_.leftStride), from)));
  }
  std::vector<Value*> sums;
  loadSums(sums, row, rows, from);
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* head = block("multiply");
  BasicBlock* after = block("multiplied");
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* p = b_.CreatePHI(b_.getInt64Ty(), 2);
  p->addIncoming(integer(0), before);
  std::vector<llvm::PHINode*> running;
  for (Value* sum : sums) {
    running.push_back(b_.CreatePHI(vectors(tile_.lanes), 2));
    running.back()->addIncoming(sum, before);
  }
  std::vector<Value*> right;
  Value* packed = b_.CreateMul(p, integer(tile_.columns()));
  for (unsigned v = 0; v < tile_.vectors; ++v) {
    right.push_back(b_.CreateAlignedLoad(vectors(tile_.lanes),
                                         at(panel_, b_.CreateAdd(packed, integer(v * tile_.lanes))),
                                         llvm::Align(tile_.lanes * 4)));
  }
  for (unsigned r = 0; r < rows; ++r) {
    Value* x = b_.CreateAlignedLoad(b_.getFloatTy(), at(left[r], p), llvm::Align(4));
    x = b_.CreateVectorSplat(tile_.lanes, x);
    for (unsigned v = 0; v < tile_.vectors; ++v) {
      Value*& sum = sums[r * tile_.vectors + v];
      sum = b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {vectors(tile_.lanes)},
                               {x, right[v], running[r * tile_.vectors + v]});
    }
  }
  Value* next = b_.CreateAdd(p, integer(1), "", true, true);
  p->addIncoming(next, head);
  for (size_t k = 0; k < sums.size(); ++k) {
    running[k]->addIncoming(sums[k], head);
  }
  b_.CreateCondBr(b_.CreateICmpSLT(next, length), head, after);
  b_.SetInsertPoint(after);
  for (unsigned r = 0; r < rows; ++r) {
    for (unsigned v = 0; v < tile_.vectors; ++v) {
      b_.CreateAlignedStore(sums[r * tile_.vectors + v], sumsAt(row, r, v), llvm::Align(tile_.lanes * 4));
    }
  }
}

}  // namespace kintsugi::codegen
