// Inside codegen only: the address of a gathered element (passes::Core::kTake), and the flag that is set when
// an index is out of range.
//
// Ownership: none. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

// What a lookup is made of: places (integers, a scalar or a vector), elements from one to the next, how many
// there are.
struct Lookup {
  llvm::Value* places = nullptr;
  llvm::Value* step = nullptr;
  llvm::Value* count = nullptr;
  bool wraps = false;
  llvm::Value* mask = nullptr;     // of lanes that matter; null: all
  llvm::Value* outside = nullptr;  // i1 in memory: set where a place is not there
};

// Elements from the first place, as 64-bit integers; that of the first where there is no such place.
llvm::Value* emitLookup(Builder& b, const Lookup& lookup);

}  // namespace kintsugi::codegen
