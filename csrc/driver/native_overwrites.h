// Kernels that overwrite a dying operand: which loads of a kernel may alias the memory that it stores to, and
// in which steps of a plan that happens.
//
// Pure functions; any thread, no GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/kernel.h"
#include "runtime/native_plan.h"

namespace kintsugi::driver {

// The accesses of the kernel that may share memory with `store`: they read each element just before the
// kernel stores to the same place, and nothing reads that memory afterwards.
std::vector<uint32_t> overwritable(const passes::Kernel& kernel, const passes::KernelStore& store);

// The kernel with index `kernel` could store the tensor of slot `to` in the memory of slot `from`.
struct Overwrite {
  uint32_t kernel = 0, to = 0, from = 0;
};
// Makes those kernels overwrite `from` that are its last use, unless `to` has memory of its own between runs.
void overwrite(runtime::NativePlan& plan, const std::vector<Overwrite>& candidates);

}  // namespace kintsugi::driver
