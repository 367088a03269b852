// Inside codegen only: LLVM modules to object files, and object files to functions.
//
// Ownership: LoadedCode owns what it maps. Threads: callers take turns (kernel_cache.cc); loaded code may be
// dropped by any thread at any time. No GIL.
#pragma once

#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "codegen/emit_kernel.h"
#include "codegen/kernel_cache.h"

namespace kintsugi::codegen {

class ObjectCompiler {
 public:
  ObjectCompiler();
  ~ObjectCompiler();

  bool ready(std::string& reason) const;
  unsigned lanes() const;
  // How many elements each way registers hold, when they are transposed.
  unsigned square() const;
  // In which tile the kernel is computed: the usual one, or (`other`) one of another shape.
  Tile tileOf(const passes::Kernel& kernel, bool other) const;
  // CPU, features and versions: code for another one is not ours.
  const std::string& target() const;
  // The bytes of an object file; empty, with a reason, when it failed.
  std::string compile(llvm::Module& module, std::string& reason);
  std::shared_ptr<CompiledKernel> load(const std::string& object, const std::string& symbol,
                                       std::string& reason);
  // Around fork(), by the kernel cache.
  static void prepareFork();
  static void afterFork();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::codegen
