// Kernel to LLVM IR: one function
//
//   void f(void* const* memory, const int64_t* numbers, int64_t begin, int64_t end)
//
//   memory       The first element of each access. A kernel with lookups has one more: a byte that is set to
//                1 when an index is out of range.
//   numbers      The inner extent; the outer extents; for each access its outer strides and its inner stride,
//                in elements; for each op the bounds of its parts, or step and count of its lookup; for a
//                product k, its strides, chunk and depth; for attention the number of keys, and how many
//                heads share them.
//   begin, end   Rows (all outer dimensions counted as one); or elements, if there are no outer dimensions
//                and no reductions; or pieces of a product (chunks of rows by strips of columns, strips
//                first). The result of a row does not depend on the range that it is computed in.
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
  bool contract = false;  // a * b + c may be rounded once, even if the operators differ
};

std::unique_ptr<llvm::Module> emitKernel(llvm::LLVMContext& context, const passes::Kernel& kernel,
                                         const std::string& name, const EmitOptions& options);

}  // namespace kintsugi::codegen
