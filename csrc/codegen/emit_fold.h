// Inside codegen only: reduces the lanes of a vector to one value, by halves, so that the order is always the
// same.
//
// Ownership: none. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

llvm::Value* foldLanes(Builder& b, passes::Core op, llvm::Value* vector);
// For reductions that find a place (argmax): the first place of the best value.
llvm::Value* foldPlaces(Builder& b, passes::Core op, llvm::Value* value, llvm::Value* place);

}  // namespace kintsugi::codegen
