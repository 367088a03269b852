// Inside codegen only: LLVM modules to object files of one target, and object files to functions.
//
// Ownership: LoadedCode owns what it maps. Threads: callers take turns (kernel_cache.cc); loaded code may be
// dropped by any thread at any time. No GIL.
#pragma once

#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "codegen/kernel_cache.h"
#include "support/target.h"

namespace kintsugi::codegen {

class ObjectCompiler {
 public:
  explicit ObjectCompiler(const Target& target);
  ~ObjectCompiler();

  bool ready(std::string& reason) const;
  // The machine, its features, and versions. Object files with another key must not be loaded.
  const std::string& key() const;
  // The bytes of an object file; empty, with a reason, when it failed.
  std::string compile(llvm::Module& module, std::string& reason);
  std::shared_ptr<CompiledKernel> load(const std::string& object, const std::string& symbol,
                                       std::string& reason);
  // Called by the kernel cache before and after fork().
  static void prepareFork();
  static void afterFork();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::codegen
