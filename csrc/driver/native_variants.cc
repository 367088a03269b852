#include "driver/native_variants.h"

namespace kintsugi::driver {

std::span<const NativeVariant> nativeVariants() {
  static constexpr NativeVariant kVariants[] = {
      {},
      {.name = "products by the library", .tiles = false},
      {.name = "attention by the library", .attention = false},
      {.name = "products and attention by the library", .tiles = false, .attention = false},
      {.name = "tiles of another shape", .shape = 1},
      // A step of two each way changes less than the noise of a trial; eight leaves threads idle.
      {.name = "smaller parts for threads", .parts = 0.25},
      {.name = "larger parts for threads", .parts = 4},
  };
  return kVariants;
}

bool makesDifference(const NativeVariant& variant, const VariantUses& uses) {
  const NativeVariant same;
  return (variant.tiles || uses.tiled != 0) && (variant.attention || uses.attention != 0) &&
         (variant.shape == same.shape || uses.tiled + uses.attention != 0) &&
         (variant.parts == same.parts || uses.threads > 1);
}

}  // namespace kintsugi::driver
