#include "torchapi/eager_traits.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu_cpu_dispatch.h>

#include <array>
#include <cmath>

namespace kintsugi::torchapi {

bool geluKeepsSign() {
  static const bool keeps = [] {
    std::array<float, 64> numbers, results;
    numbers.fill(-30.0F);
    const auto count = static_cast<int64_t>(numbers.size());
    // Independent of the program's default dtype.
    const auto options = at::TensorOptions(at::kCPU).dtype(at::kFloat);
    at::Tensor result = at::from_blob(results.data(), {count}, options);
    // Calls the kernel directly, so that no mode sees it.
    at::cpu::gelu_out(result, at::from_blob(numbers.data(), {count}, options));
    return std::signbit(results.front());
  }();
  return keeps;
}

bool hasCapturingDevices() {
  static const bool has = at::hasCUDA();
  return has;
}

}  // namespace kintsugi::torchapi
