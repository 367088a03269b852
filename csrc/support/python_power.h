// x ** y of two floats as Python computes it.
//
//   pythonPower(2, 0.5): sqrt(2);   pythonPower(-8, 1.0 / 3): nullopt, as Python gives a complex number
//
// Pure; any thread, no GIL.
#pragma once

#include <cmath>
#include <optional>

namespace kintsugi {

// nullopt where Python may raise or give a complex number, and for arguments that are not finite.
inline std::optional<double> pythonPower(double x, double y) {
  if (!std::isfinite(x) || !std::isfinite(y) || (x < 0 && y != std::floor(y)) || (x == 0 && y < 0)) {
    return std::nullopt;
  }
  const double power = std::pow(x, y);
  // Python raises if the result overflows; if it underflows, that depends on the C library's errno.
  return std::isnormal(power) || (power == 0 && x == 0) ? std::optional(power) : std::nullopt;
}

}  // namespace kintsugi
