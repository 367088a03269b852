// Inside codegen only: attention (passes/kernel.h), softmax(scores) * values without the scores in memory.
//
// Idea: blocks of keys are taken one after the other, with the largest score, the sum of powers and the
// weighted sum of values so far; a larger score scales down what there is. Two forms:
//   many queries: vectors run along queries. Scores are [key][query], the sums [element][query], so that a
//     score is made of broadcast elements of keys, where they lie, and largest scores and sums need no
//     shuffles. Queries are turned once at the beginning, sums at the end.
//   few queries: vectors run along the elements of keys and values, each of which is read once.
// A query's result does not depend on what else is computed: blocks begin at the first key.
//
// Ownership: the module belongs to the caller. Threads: one per context.
#pragma once

#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "codegen/emit_kernel.h"

namespace kintsugi::codegen {

std::unique_ptr<llvm::Module> emitAttention(llvm::LLVMContext& context, const passes::Kernel& kernel,
                                            const std::string& name, const EmitOptions& options);

}  // namespace kintsugi::codegen
