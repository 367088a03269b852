#include "torchapi/eager_traits.h"

#include <ATen/Context.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

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

// Within a scope, operators run as if the program had set no mode: only autograd sees them.
class WithoutModes {
 public:
  WithoutModes() { at::SavedTensorDefaultHooks::set_tls_state({}); }
  ~WithoutModes() { at::SavedTensorDefaultHooks::set_tls_state(hooks_); }
  WithoutModes(const WithoutModes&) = delete;

 private:
  const c10::InferenceMode ordinary_{false};
  const c10::impl::ForceDispatchKeyGuard keys_{c10::default_included_set, c10::default_excluded_set};
  const c10::AutoGradMode follow_{true};
  const at::DisableRecordFunctionGuard unseen_;
  const at::impl::SavedTensorDefaultHooksTLS hooks_ = at::SavedTensorDefaultHooks::get_tls_state();
};

// Does the gradient of a zero arrive at it, through an operator for which zero is a limit?
bool passes(at::Tensor (*clamped)(const at::Tensor&)) {
  const auto options = at::TensorOptions(at::kCPU).dtype(at::kFloat);
  const at::Tensor zero = at::zeros({1}, options).requires_grad_();
  const auto node = clamped(zero).grad_fn();
  return (*node)({at::ones({1}, options)}).front().item<float>() != 0;
}

ops::ClampGradients askForClamps() {
  const WithoutModes scope;
  return {.clamp = passes([](const at::Tensor& x) { return at::clamp(x, 0, 1); }),
          .clampMin = passes([](const at::Tensor& x) { return at::clamp_min(x, 0); }),
          .clampMax = passes([](const at::Tensor& x) { return at::clamp_max(x, 0); })};
}

}  // namespace

const ops::ClampGradients& clampGradients() {
  static const ops::ClampGradients gradients = askForClamps();
  return gradients;
}

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
