#include "torchapi/eager_traits.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu_cpu_dispatch.h>

#include <array>
#include <cmath>
#include <limits>

namespace kintsugi::torchapi {

namespace {

// gelu() of a contiguous tensor of `number`.
template <class Scalar>
float geluOf(Scalar number) {
  std::array<Scalar, 64> numbers, results;
  numbers.fill(number);
  const auto count = static_cast<int64_t>(numbers.size());
  // Independent of the program's default dtype.
  const auto options = at::TensorOptions(at::kCPU).dtype(c10::CppTypeToScalarType<Scalar>::value);
  at::Tensor result = at::from_blob(results.data(), {count}, options);
  // Calls the kernel directly, so that no mode sees it.
  at::cpu::gelu_out(result, at::from_blob(numbers.data(), {count}, options));
  return static_cast<float>(results.front());
}

template <class Scalar>
ops::GeluForm geluForm() {
  using Limits = std::numeric_limits<Scalar>;
  return {.keepsSign = std::signbit(geluOf(static_cast<Scalar>(-30.0F))),
          .losesInfinity = std::isnan(geluOf(Limits::infinity())),
          .halvesLast = std::isinf(geluOf(Limits::max()))};
}

}  // namespace

const ops::GeluForms& geluForms() {
  static const ops::GeluForms forms = {
      .f32 = geluForm<float>(), .bf16 = geluForm<c10::BFloat16>(), .f16 = geluForm<c10::Half>()};
  return forms;
}

bool hasCapturingDevices() {
  static const bool has = at::hasCUDA();
  return has;
}

}  // namespace kintsugi::torchapi
