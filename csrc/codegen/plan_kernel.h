// Inside codegen only: decisions before a kernel is emitted: which loop over a row computes which operation
// (passes/kernel.h explains stages), and the shape of the register tile.
//
// Plain data, pure functions, no LLVM.
#pragma once

#include <functional>
#include <vector>

#include "passes/kernel.h"
#include "support/target.h"

namespace kintsugi::codegen {

// What is decided about the ops before code is emitted.
struct Plan {
  std::vector<bool> uniform;    // the same all along a row
  std::vector<uint32_t> stage;  // the loop that computes it; for a reduction, the loop after that
  std::vector<bool> kept;       // costly, and needed in later loops: stored for the row
  uint32_t stages = 1;
};

Plan planKernel(const passes::Kernel& kernel);
// The values for which loop `s` is there: arguments of its reductions, and values that it stores.
void forEachTarget(const passes::Kernel& kernel, const Plan& plan, uint32_t s,
                   const std::function<void(uint32_t)>& visit);

// The tile in which the product is computed: the target's usual one, or (`other`) the one of the other shape.
ProductTile tileFor(const passes::Kernel& kernel, const Target& target, bool other);

}  // namespace kintsugi::codegen
