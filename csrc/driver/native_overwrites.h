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

// Accesses of the kernel. Each of them reads an element right before what `store` writes is computed of it,
// at the same place; nothing else reads that memory afterwards.
std::vector<uint32_t> overwritable(const passes::Kernel& kernel, const passes::KernelStore& store);

// The `kernel`th of the plan, which makes the tensor of slot `to`, could write it over that of `from`.
struct Overwrite {
  uint32_t kernel = 0, to = 0, from = 0;
};
// Where the step uses `from` last, and memory is not kept anyway.
void overwrite(runtime::NativePlan& plan, const std::vector<Overwrite>& candidates);

}  // namespace kintsugi::driver
