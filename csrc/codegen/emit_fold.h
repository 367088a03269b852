// Inside codegen only: reduces the lanes of a vector to one value, by halves, so that the order is always the
// same.
//
//   [a, b, c, d]   =>   [op(a, c), op(b, d)]   =>   op(op(a, c), op(b, d))
//
// Ownership: none. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

llvm::Value* foldLanes(Builder& b, passes::Core op, llvm::Value* vector);
// For reductions that find an index (argmax): that of the extreme value. Of equal ones the smaller index
// wins; NaN is the extreme, as in ATen.
llvm::Value* foldIndices(Builder& b, passes::Core op, llvm::Value* value, llvm::Value* index);

}  // namespace kintsugi::codegen
