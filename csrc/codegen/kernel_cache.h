// Compiled kernels: made once for each structure, kept in memory and on disk.
//
// Kernels are keyed by target() and their structure (Kernel::key()), so 24 equal blocks compile once. The
// compiler makes an object file. The same bytes are written to the disk cache, with a checksum, under a name
// made from the key, the target and the versions. A file that is not valid is ignored and replaced.
//
// Ownership: a CompiledKernel owns its machine code; whoever may run it holds it. Threads: all functions may
// be called by any thread; compiling is done by one at a time, without the GIL. Fork: prepareFork() and
// afterFork() are called around it, so that the child never sees half-compiled state. Invalidation: clear()
// forgets what nobody holds, and so does a new kernel when there are many.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "passes/kernel.h"

namespace kintsugi::codegen {

using KernelFunction = void (*)(void* const* memory, const int64_t* numbers, int64_t begin, int64_t end);

class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
  KernelFunction function = nullptr;
};

struct CacheCounters {
  uint64_t kernels = 0;   // in memory
  uint64_t compiled = 0;  // by LLVM, in this process
  uint64_t reused = 0;    // found in memory
  uint64_t loaded = 0;    // found on disk
  uint64_t rejected = 0;  // files that were not valid
  uint64_t bytes = 0;     // of machine code
  double seconds = 0;     // spent in compiling
};

// Null, with a reason, if the kernel can't be compiled. `contract`: a product and the sum that takes it may
// be rounded as one, even if they come from different operators of the program. `tiles`: the shape of tiles
// for products and attention; 0 is the usual one.
std::shared_ptr<const CompiledKernel> compileKernel(const passes::Kernel& kernel, bool contract,
                                                    std::string& reason, unsigned tiles = 0);

// Remembers which of several ways was the fastest, in the kernel cache and for the current target. Recalling
// comes first, and may wait for a kernel that is being compiled; remembering does not wait.
std::optional<std::string> recallChoice(const std::string& question);
void rememberChoice(const std::string& question, const std::string& choice);

// The folder of object files; empty: none. `limit`: bytes, beyond which the least recently used files are
// removed.
void setDiskCache(const std::string& directory, uint64_t limit);
// The function is called once if that folder can't be used, with the reason; on any thread, with locks held.
void setDiskWarning(std::function<void(const std::string&)> function);
// The number of kernels that stay in memory. Beyond it, the least recently used kernels that nobody holds are
// dropped.
void setMostKernels(size_t limit);
CacheCounters cacheCounters();
void clearCache(bool disk);

void prepareFork();
void afterFork();

// The machine that code is made for, as LLVM names it: "... avx2-32768-8-1048576-64 x86_64-... znver3 +avx2
// ...".
std::string targetDescription();

}  // namespace kintsugi::codegen
