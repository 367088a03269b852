// Inside codegen only: moves a block of memory that lies along one dimension to where it lies along another.
//
// Ownership: values belong to the function under construction. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"
#include "support/target.h"

namespace kintsugi::codegen {

struct Turned {
  llvm::Value* base = nullptr;    // floats: the first of the block's rows
  llvm::Value* stride = nullptr;  // from column to column, in elements
  llvm::Value* room = nullptr;    // target.turnedRows rows of target.turnedColumns floats
};

// room[r][j - from] = base[j * stride + r] for columns j in [from, to), at most target.turnedColumns, of
// `count` rows.
void emitTurn(Builder& b, llvm::Function* function, const Target& target, const Turned& turned,
              llvm::Value* from, llvm::Value* to, llvm::Value* count);

}  // namespace kintsugi::codegen
