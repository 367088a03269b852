// Inside codegen only: transposes a block of memory into a buffer that stays in the cache, so that vectors
// can run along the other dimension.
//
// Ownership: values belong to the function under construction. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"
#include "support/target.h"

namespace kintsugi::codegen {

struct TransposeBlock {
  llvm::Value* base = nullptr;    // floats: the first of the block's rows
  llvm::Value* stride = nullptr;  // from column to column, in elements
  llvm::Value* room = nullptr;    // target.transposeRows rows of target.transposeColumns floats
};

// room[r][j - from] = base[j * stride + r] for columns j in [from, to), at most target.transposeColumns, of
// `count` rows.
void emitTranspose(Builder& b, llvm::Function* function, const Target& target,
                   const TransposeBlock& transposed, llvm::Value* from, llvm::Value* to, llvm::Value* count);

}  // namespace kintsugi::codegen
