// x ** y of two floats as Python computes it.
#pragma once

#include <cmath>
#include <optional>

namespace kintsugi {

// Nothing where Python may raise, give a complex number, or has rules of its own for what is not finite.
inline std::optional<double> pythonPower(double x, double y) {
  if (!std::isfinite(x) || !std::isfinite(y) || (x < 0 && y != std::floor(y)) || (x == 0 && y < 0)) {
    return std::nullopt;
  }
  const double power = std::pow(x, y);
  // What overflows raises; of what underflows the C library's errno decides.
  return std::isnormal(power) || (power == 0 && x == 0) ? std::optional(power) : std::nullopt;
}

}  // namespace kintsugi
