// Inside codegen only: loads and stores of a kernel (passes/kernel.h), a vector of elements at the current
// place.
//
// How an access is read follows from how its elements lie for the lanes of a vector: one after the other (a
// load), with a stride (a gather), all the same (a load of one), each for some neighbours (a load and a
// shuffle). With a mask, lanes that do not exist are neither read nor written.
//
//   row_ = ...; index_ = i; mask_ = nullptr;  // where the vector is
//   Value* x = emitLoad(0);
//   storeVector(1, x);
//
// Ownership: values belong to the function under construction. Threads: as the builder's.
#pragma once

#include <vector>

#include "codegen/emit_ops.h"
#include "passes/kernel.h"

namespace kintsugi::codegen {

class AccessEmitter {
 protected:
  AccessEmitter(llvm::LLVMContext& context, const passes::Kernel& kernel, unsigned lanes)
      : kernel_(kernel), lanes_(lanes), b_(context) {}

  llvm::Value* integer(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  llvm::Constant* laneNumbers() { return codegen::laneNumbers(b_, lanes_); }
  llvm::Value* element(const passes::KernelAccess& access, llvm::Value* from, llvm::Value* index);

  // The values of an access, as they are in registers. `shift`: a number of elements, as a scalar or for each
  // lane.
  llvm::Value* emitLoad(uint32_t at, llvm::Value* shift = nullptr);
  void storeVector(uint32_t at, llvm::Value* x);

  const passes::Kernel& kernel_;
  const unsigned lanes_;
  Builder b_;
  std::vector<std::vector<llvm::Value*>> outerStrides_;  // by access
  std::vector<llvm::Value*> innerStride_;                // by access
  std::vector<llvm::Value*> row_;                        // by access: the current row
  llvm::Value* index_ = nullptr;                         // the current place in a loop
  llvm::Value* mask_ = nullptr;                          // the lanes that exist; null: all

 private:
  llvm::Value* pointer(uint32_t at);
  llvm::Value* pointers(uint32_t at);
  llvm::Value* fullMask();
  llvm::Value* loadRepeated(uint32_t at);
};

}  // namespace kintsugi::codegen
