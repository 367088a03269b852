// Inside codegen only: attention (passes/kernel.h), softmax(scores) * values without the scores in memory.
//
// Blocks of keys are processed one after the other. The code keeps the largest score, the sum of powers and
// the weighted sum of values so far; when a larger score comes, it scales the sums down. There are two forms:
//  many queries: vectors run along queries. Scores are [key][query], sums are [element][query]. So a score is
//    computed from broadcast elements of keys, which are read in place, and the largest score and the sums
//    need no shuffles. Queries are transposed once at the beginning, sums at the end.
//  few queries: vectors run along the elements of keys and values, each of which is read once.
// The result of a query does not depend on what else is computed, because blocks begin at the first key.
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
