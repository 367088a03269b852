#include "ir/dtype.h"

#include <array>

namespace kintsugi::ir {

namespace {

constexpr auto kNames = std::to_array<std::string_view>({
    "u8",     "i8",         "i16",        "i32",     "i64",     "f16",      "f32",    "f64",     // 0
    "c32",    "c64",        "c128",       "bool",    "qi8",     "qu8",      "qi32",   "bf16",    // 8
    "qu4x2",  "qu2x4",      "bits1x8",    "bits2x4", "bits4x2", "bits8",    "bits16", "f8e5m2",  // 16
    "f8e4m3", "f8e5m2fnuz", "f8e4m3fnuz", "u16",     "u32",     "u64",      "u1",     "u2",      // 24
    "u3",     "u4",         "u5",         "u6",      "u7",      "i1",       "i2",     "i3",      // 32
    "i4",     "i5",         "i6",         "i7",      "f8e8m0",  "f4e2m1x2",                      // 40
});

}  // namespace

std::string_view dtypeName(int64_t scalarType) {
  if (scalarType < 0 || scalarType >= static_cast<int64_t>(kNames.size())) {
    return {};
  }
  return kNames[static_cast<size_t>(scalarType)];
}

std::optional<int64_t> dtypeNumber(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<int64_t>(i);
    }
  }
  return std::nullopt;
}

}  // namespace kintsugi::ir
