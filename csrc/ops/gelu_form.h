// How eager mode's gelu() computes what has other results by machine (torchapi/eager_traits.h finds out).
//
// Plain data. Native code does the same (passes/decompose_pointwise.cc).
#pragma once

namespace kintsugi::ops {

// Of gelu() without approximation, of contiguous tensors with more than one element: those a library
// computes, for the types that the processor has instructions for. ATen's own loops have neither of the last
// two.
struct GeluForm {
  // A number far below zero gives -0.0. Loops that multiply keep the sign; fused ones lose it.
  bool keepsSign = false;
  bool losesInfinity = false;  // infinity gives NaN
  bool halvesLast = false;     // the largest numbers give infinity
};

struct GeluForms {
  GeluForm f32, bf16, f16;
};

}  // namespace kintsugi::ops
