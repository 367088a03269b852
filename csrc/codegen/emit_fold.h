// Inside codegen only: horizontal reduction of a vector's lanes, in halves, so that the order is always the
// same.
//
// Ownership: none. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

llvm::Value* foldLanes(Builder& b, passes::Core op, llvm::Value* vector);
// Of reductions that find a place: the first of the best values' places.
llvm::Value* foldPlaces(Builder& b, passes::Core op, llvm::Value* value, llvm::Value* place);

}  // namespace kintsugi::codegen
