// Inside codegen only: conversions between f16 and f32 written out in integers, for targets that have no
// instructions for them. (LLVM would call functions of a library that the process need not have.)
//
// Results are those of the instructions, subnormals, ties and NaN included. Ownership: none. Threads: one per
// context.
#pragma once

#include <llvm/IR/Module.h>

namespace kintsugi::codegen {

void expandHalves(llvm::Module& module);

}  // namespace kintsugi::codegen
