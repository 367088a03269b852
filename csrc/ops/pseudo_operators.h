// Operators that our passes make and that the dispatcher does not have: only native plans run them.
//
//   taped.aten.conv2d.default   the operator with autograd on. Behind its results it has a leaf for each
//   value
//                               that is differentiated: what autograd took for that value
//   taped.gradients             lists of results, leaves and gradients that have arrived -> gradients of
//   leaves folded.convolution.default  a convolution with the batch norm, residual and activation behind it
//                               (passes/fold_convolutions.h has its operands)
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
