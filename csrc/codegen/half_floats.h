// Inside codegen only: conversions between f16 and f32 written out in integers, for targets that have no
// instructions for them. (LLVM would call functions of a library that the process need not have.)
//
// An f16 is its 16 bits, scalar or vector. Results are those of the instructions, subnormals, ties and NaN
// included. Ownership: none. Threads: as the builder's.
#pragma once

#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

llvm::Value* floatOfHalf(Builder& b, llvm::Value* bits);
// To nearest, ties to even.
llvm::Value* halfOfFloat(Builder& b, llvm::Value* x);

}  // namespace kintsugi::codegen
