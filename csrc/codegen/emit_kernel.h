// Kernel to LLVM IR: one function `void f(void* const* memory, const int64_t* numbers, int64_t begin, int64_t
// end)`.
//
// `memory`: the first element of each access. `numbers`: the inner extent, the outer extents, then for each
// access its outer strides and its inner stride, in elements. `begin` and `end`: rows (all outer dimensions
// counted as one), or elements where there are no outer dimensions and no reductions. What a row gives does
// not depend on the range that it is computed in.
//
// Ownership: the module belongs to the caller. Threads: one per context.
#pragma once

#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "passes/kernel.h"

namespace kintsugi::codegen {

struct EmitOptions {
  unsigned lanes = 16;   // floats handled at once
  bool contract = true;  // a * b + c may be rounded once
};

std::unique_ptr<llvm::Module> emitKernel(llvm::LLVMContext& context, const passes::Kernel& kernel,
                                         const std::string& name, const EmitOptions& options);

}  // namespace kintsugi::codegen
