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
// The values that loop `s` computes: the arguments of its reductions, and what it stores.
void forEachTarget(const passes::Kernel& kernel, const Plan& plan, uint32_t s,
                   const std::function<void(uint32_t)>& visit);

// The tile in which the product is computed: the one that suits the target, or (`swapped`) the other one of
// Target::Products::tall and `wide`.
ProductTile tileFor(const passes::Kernel& kernel, const Target& target, bool swapped);

}  // namespace kintsugi::codegen
