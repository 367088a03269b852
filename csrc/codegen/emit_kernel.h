// Kernel to LLVM IR: one function `void f(void* const* memory, const int64_t* numbers, int64_t begin, int64_t
// end)`.
//
// `memory`: the first element of each access. `numbers`: the inner extent, the outer extents, then for each
// access its outer strides and its inner stride, in elements. `begin` and `end`: rows (all outer dimensions
// counted as one), or elements where there are no outer dimensions and no reductions, or pieces of a product
// (chunks of rows by strips of columns, strips first). What a row gives does not depend on the range that it
// is computed in. After the strides: for each op the bounds of parts, or step and count of a lookup; of a
// product k, its strides, chunk and depth; of attention the number of keys and how many heads share them.
// Where a kernel looks things up, `memory` ends with a byte that it sets to 1 if a place is not there.
//
// Ownership: the module belongs to the caller. Threads: one per context.
#pragma once

#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "passes/kernel.h"
#include "support/target.h"

namespace kintsugi::codegen {

struct EmitOptions {
  Target target = describeTarget({});
  ProductTile tile = target.products.tall;
  bool contract = false;  // a * b + c may be rounded once, whatever operators they come from
};

std::unique_ptr<llvm::Module> emitKernel(llvm::LLVMContext& context, const passes::Kernel& kernel,
                                         const std::string& name, const EmitOptions& options);

}  // namespace kintsugi::codegen
