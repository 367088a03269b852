// Inside codegen only: the address of a gathered element (passes::Core::kTake), and the flag that is set when
// an index is out of range.
//
// Ownership: none. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

// The operands of a lookup: places (integers, a scalar or a vector), the number of elements from one place to
// the next, and the number of places.
struct Lookup {
  llvm::Value* places = nullptr;
  llvm::Value* step = nullptr;
  llvm::Value* count = nullptr;
  bool wraps = false;
  llvm::Value* mask = nullptr;     // the lanes that matter; null: all
  llvm::Value* outside = nullptr;  // i1 in memory: set if a place is out of range
};

// The offset of each place in elements, as 64-bit integers; 0 for a place that is out of range.
llvm::Value* emitLookup(Builder& b, const Lookup& lookup);

}  // namespace kintsugi::codegen
