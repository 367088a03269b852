// Comparison of an int with a float as Python has it: exact, though neither type holds all values of the
// other.
//
//   compareExactly(9007199254740993, 9007199254740992.0) == std::partial_ordering::greater
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace kintsugi {

inline std::partial_ordering compareExactly(int64_t i, double x) {
  if (std::isnan(x)) {
    return std::partial_ordering::unordered;
  }
  if (x >= 0x1p63) {
    return std::partial_ordering::less;
  }
  if (x < -0x1p63) {
    return std::partial_ordering::greater;
  }
  const auto whole = static_cast<int64_t>(x);  // towards zero
  if (i != whole) {
    return i < whole ? std::partial_ordering::less : std::partial_ordering::greater;
  }
  // Exact: a float with a fraction is below 2^53, and others are whole.
  return 0.0 <=> x - static_cast<double>(whole);
}

}  // namespace kintsugi
