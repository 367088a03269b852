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

// In registers, and in memory (bool: a byte; bf16: 16 bits, and f16 where target() has no instructions for
// it). `lanes` 1: a scalar.
llvm::Type* registerType(Builder& b, passes::Elem elem, unsigned lanes);
llvm::Type* memoryType(Builder& b, passes::Elem elem, unsigned lanes);
llvm::Value* fromMemory(Builder& b, passes::Elem elem, llvm::Value* value);
llvm::Value* toMemory(Builder& b, passes::Elem elem, llvm::Value* value);

// `from`: the element type of the arguments.
llvm::Value* emitCore(Builder& b, passes::Core op, passes::Elem elem, passes::Elem from,
                      std::span<llvm::Value* const> args);
// A mask of the first `count` lanes, all of them at most; `count` is a 64-bit integer, not negative.
llvm::Value* firstLanes(Builder& b, unsigned lanes, llvm::Value* count);
// `square`: n vectors of n floats, n a power of two. Rows become columns.
void transposeSquare(Builder& b, std::vector<llvm::Value*>& square);
llvm::Constant* laneNumbers(Builder& b, unsigned lanes);
llvm::Value* emitConstant(Builder& b, passes::Elem elem, double number, int64_t integer);
llvm::Value* reduceIdentity(Builder& b, passes::Core op);
// Of reductions that find a place: is x to be taken rather than y?
llvm::Value* isBetter(Builder& b, passes::Core op, llvm::Value* x, llvm::Value* y);
llvm::Value* combine(Builder& b, passes::Core op, llvm::Value* x, llvm::Value* y);

}  // namespace kintsugi::codegen
