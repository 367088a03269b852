// Inside codegen only: conversions between f16 and f32 by integer operations, for targets without
// instructions for them. (LLVM would call functions of a library that the process may lack.)
//
// An f16 is an integer of 16 bits, scalar or vector. Results are those of the instructions, also for
// subnormals, ties and NaN. Ownership: none. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

llvm::Value* floatOfHalf(Builder& b, llvm::Value* bits);
// To nearest, ties to even.
llvm::Value* halfOfFloat(Builder& b, llvm::Value* x);

}  // namespace kintsugi::codegen
