// Ways to compile a segment that give the same but for rounding: what `mode="max-autotune"` tries.
//
// Pure functions over a table; no GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kintsugi::driver {

struct NativeVariant {
  std::string_view name = "the usual way";
  bool tiles = true;      // products as kernels
  bool attention = true;  // attention as a kernel
  unsigned shape = 0;     // of tiles (codegen/kernel_cache.h)
  double parts = 1;       // what is worth a thread, compared with the target's costs.minWorkPerThread
};

// The first is the usual one.
std::span<const NativeVariant> nativeVariants();

// How often a segment, compiled in the usual way, uses what variants change.
struct VariantUses {
  size_t tiled = 0;      // products as kernels
  size_t attention = 0;  // attention as a kernel
  int64_t threads = 1;
};
bool makesDifference(const NativeVariant& variant, const VariantUses& uses);

}  // namespace kintsugi::driver
