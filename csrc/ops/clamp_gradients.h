// Does eager mode's derivative of clamp() and its kin give an element the gradient that is equal to a limit?
// Releases of torch differ (torchapi/eager_traits.h finds out).
//
// Plain data. Native code does the same (passes/gradients_pointwise.cc).
#pragma once

namespace kintsugi::ops {

struct ClampGradients {
  bool clamp = true;
  bool clampMin = true;
  bool clampMax = true;
};

}  // namespace kintsugi::ops
