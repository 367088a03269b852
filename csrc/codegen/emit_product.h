// Inside codegen only: the matrix product of a kernel (passes/kernel.h), without the operations on its
// result.
//
// A panel of a few vectors of columns is packed, `depth` of k at a time, into memory that stays in the
// first-level cache. Tiles of some rows are multiplied with it one after the other; a tile's sums stay in
// registers. The first operand is read in place. Each element is summed in the order of k, in parts of
// `depth`, whichever tile computes it.
//
// Ownership: values belong to the function under construction. Threads: as the builder's.
#pragma once

#include <functional>
#include <vector>

#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

// for (i = from; i < to; i += step) body(i)
void emitLoop(Builder& b, llvm::Function* function, llvm::Value* from, llvm::Value* to, int64_t step,
              const std::function<void(llvm::Value*)>& body);

// Of memory on the stack that is read a vector of `lanes` floats at once: a line of the cache, or the vector
// if that is longer. A line is a power of two (support/host_machine.cc).
llvm::Align lineAlignment(unsigned lanes);

struct TileShape {
  unsigned rows = 6;
  unsigned vectors = 1;
  unsigned lanes = 16;
  unsigned square = 8;  // side of the squares that are transposed at once
  unsigned columns() const { return vectors * lanes; }
};

// Values of the function; strides in elements.
struct ProductOperands {
  llvm::Value* left = nullptr;
  llvm::Value* right = nullptr;
  llvm::Value* leftStride = nullptr;
  llvm::Value* rightStride = nullptr;
  llvm::Value* n = nullptr;
  llvm::Value* k = nullptr;
  llvm::Value* depth = nullptr;
  bool rightByColumns = false;
};

class ProductEmitter {
 public:
  // `chunk`: the most rows that emitPanel() will get. Allocates memory on the stack, in the entry block.
  ProductEmitter(Builder& b, llvm::Function* function, const TileShape& tile, const ProductOperands& operands,
                 llvm::Value* chunk);

  // Computes the sums of columns [column, column + tile columns) of rows [first, first + count), into sums().
  // Sums of columns past the end have no meaning.
  void emitPanel(llvm::Value* first, llvm::Value* count, llvm::Value* column);
  // Sets another pair of matrices of the same sizes.
  void setMatrices(llvm::Value* left, llvm::Value* right) {
    operands_.left = left;
    operands_.right = right;
  }
  // One row of sums each tile.columns() elements.
  llvm::Value* sums() const { return sums_; }

 private:
  llvm::Type* vectors(unsigned lanes) { return llvm::FixedVectorType::get(b_.getFloatTy(), lanes); }
  llvm::Value* integer(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  llvm::Value* at(llvm::Value* base, llvm::Value* index) {
    return b_.CreateGEP(b_.getFloatTy(), base, index);
  }
  llvm::BasicBlock* block(const char* name);
  void packRows(llvm::Value* column, llvm::Value* from, llvm::Value* length);
  void packColumns(llvm::Value* column, llvm::Value* from, llvm::Value* length);
  void emitTile(unsigned rows, llvm::Value* row, llvm::Value* first, llvm::Value* rest, llvm::Value* from,
                llvm::Value* length);
  void loadSums(std::vector<llvm::Value*>& sums, llvm::Value* row, unsigned rows, llvm::Value* from);
  llvm::Value* sumsAt(llvm::Value* row, unsigned r, unsigned v);

  Builder& b_;
  llvm::Function* function_;
  const TileShape tile_;
  ProductOperands operands_;
  llvm::Value* panel_ = nullptr;
  llvm::Value* sums_ = nullptr;
};

}  // namespace kintsugi::codegen
