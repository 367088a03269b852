// Elementary functions on vectors of floats, written out as LLVM IR, so that they are inlined into the loops.
//
// Each works on `float` or a vector of it. Errors stay within 3 units in the last place, those of erf within
// 6 (tests/unit/codegen checks it); NaN stays NaN, infinities and signed zeros come out as in the C library.
// On targets without fma, products and sums are rounded one by one, and the bounds hold there, too.
// Ownership: none. Threads: as the builder's.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace kintsugi::codegen {

llvm::Value* emitExp(llvm::IRBuilder<>& b, llvm::Value* x);
// exp(x) for x <= 0, where results below 2^-126 may be 0 because they are added to a 1.
llvm::Value* emitExpOfNegative(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* emitLog(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* emitTanh(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* emitErf(llvm::IRBuilder<>& b, llvm::Value* x);

}  // namespace kintsugi::codegen
