// Inside codegen only: element types as LLVM types, and core operations on scalars or vectors of them.
//
// Small floats are `float` in registers. Ownership: none. Threads: as the builder's.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>
#include <vector>

#include "passes/tensor_graph.h"

namespace kintsugi::codegen {

using Builder = llvm::IRBuilder<>;

// The LLVM type in registers, and in memory (bool: a byte; bf16: 16 bits; f16: 16 bits if target() has no
// instructions for it). If `lanes` is 1, a scalar.
llvm::Type* registerType(Builder& b, passes::Elem elem, unsigned lanes);
llvm::Type* memoryType(Builder& b, passes::Elem elem, unsigned lanes);
llvm::Value* fromMemory(Builder& b, passes::Elem elem, llvm::Value* value);
llvm::Value* toMemory(Builder& b, passes::Elem elem, llvm::Value* value);

// `from`: the element type of the arguments.
llvm::Value* emitCore(Builder& b, passes::Core op, passes::Elem elem, passes::Elem from,
                      std::span<llvm::Value* const> args);
// A mask of the first `count` lanes, or of all lanes if there are fewer; `count` is a non-negative 64-bit
// integer.
llvm::Value* firstLanes(Builder& b, unsigned lanes, llvm::Value* count);
// `square`: n vectors of n floats, n a power of two. Rows become columns.
void transposeSquare(Builder& b, std::vector<llvm::Value*>& square);
llvm::Constant* laneNumbers(Builder& b, unsigned lanes);
llvm::Value* emitConstant(Builder& b, passes::Elem elem, double number, int64_t integer);
llvm::Value* reduceIdentity(Builder& b, passes::Core op);
// For reductions that find a place (argmax): true if x is to be taken rather than y.
llvm::Value* isBetter(Builder& b, passes::Core op, llvm::Value* x, llvm::Value* y);
llvm::Value* combine(Builder& b, passes::Core op, llvm::Value* x, llvm::Value* y);

}  // namespace kintsugi::codegen
