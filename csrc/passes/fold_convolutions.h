// Convolutions with what is made of their results: batch norm (evaluation), a residual, an activation.
//
//   %c = aten.conv2d.default %x, %w, none, [1, 1], [1, 1], [1, 1], 1
//   %n = aten.batch_norm.default %c, %g, %b, %m, %v, false, 0.1, 1e-05, true
//   %y = aten.silu.default %n
//   =>
//   %y = folded.convolution.default %x, %w, none, [1, 1], [1, 1], [1, 1], 1,
//                                   %g, %b, %m, %v, 1e-05, none, "swish", 0
//
// Works on a segment (passes/extract_segment.h). Of f32 in two dimensions with fixed sizes, weights and
// statistics being inputs of the segment: the runtime makes them one packed weight and looks in every run
// whether they are still what it was made of (torchapi/folded_convolution.h). Its results lie with the
// channels last: who uses this pass also uses passes/channels_last.h, or throws the result away. ReLU is left
// out, since the library makes 0 of NaN; a residual is taken where no ReLU follows. Nothing is moved across
// an operator that writes. Pure function, no GIL.
#pragma once

#include "ir/trace.h"

namespace kintsugi::passes {

// False: there is no convolution of that kind, and nothing has changed.
// `norms`: batch norm may be part of weight and bias, which rounds otherwise than two operators do.
bool foldConvolutions(ir::Trace& segment, bool norms = true);

// The operands of ops::kFoldedConvolution.
struct FoldedOperands {
  enum : size_t {
    kInput,
    kWeight,
    kBias,
    kStride,
    kPadding,
    kDilation,
    kGroups,
    kScale,
    kShift,
    kMean,
    kVariance,
    kEpsilon,
    kAdded,
    kActivation,
    kSlope,
    kCount
  };
};

}  // namespace kintsugi::passes
