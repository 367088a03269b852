// Operators that our passes make and that the dispatcher does not have: only native plans run them.
//
//   taped.aten.conv2d.default    The operator, run with autograd on. After its own results it returns a leaf
//                                for each differentiated operand: the tensor that autograd saw in its place.
//   taped.gradients              Takes three lists: results, leaves, and gradients of the results. Returns
//                                the gradients of the leaves.
//   folded.convolution.default   A convolution together with the batch norm, residual and activation after it
//                                (passes/fold_convolutions.h lists its operands).
//
// The text form of traces shows these names. Constants; any thread; no GIL.
#pragma once

#include <string>
#include <string_view>

namespace kintsugi::ops {

inline constexpr std::string_view kTapedPrefix = "taped.";
inline constexpr std::string_view kTapedGradients = "taped.gradients";
inline constexpr std::string_view kFoldedConvolution = "folded.convolution.default";

inline std::string tapedOf(std::string_view name) { return std::string(kTapedPrefix) + std::string(name); }
// Also true of the gradients.
inline bool isTaped(std::string_view name) { return name.starts_with(kTapedPrefix); }
// The operator that is run with autograd on; another name stays as it is.
inline std::string_view untapedOf(std::string_view name) {
  return isTaped(name) ? name.substr(kTapedPrefix.size()) : name;
}
inline bool isPseudo(std::string_view name) { return isTaped(name) || name == kFoldedConvolution; }

}  // namespace kintsugi::ops
