#include "passes/view_strides.h"

namespace kintsugi::passes {

std::vector<int64_t> stridesOf(const ir::TensorDesc& desc) {
  return desc.strides.empty() ? ir::packedStrides(desc.sizes) : desc.strides;
}

// Both shapes are walked from the last dimension on. `run` elements of the tensor lie one behind the other,
// `step` apart; the wanted dimensions have to cover each run exactly.
std::optional<std::vector<int64_t>> viewStrides(const ir::Strided<int64_t>& tensor,
                                                std::span<const int64_t> wanted) {
  const std::vector<int64_t>&sizes = tensor.sizes, &strides = tensor.strides;
  std::vector<int64_t> out(wanted.size(), 1);
  if (sizes.empty()) return out;
  size_t to = wanted.size();
  int64_t step = strides.back(), run = 1, taken = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    run *= sizes[d];
    if (d != 0 && (sizes[d - 1] == 1 || strides[d - 1] == run * step)) continue;
    while (to > 0 && (taken < run || wanted[to - 1] == 1)) {
      out[--to] = taken * step;
      taken *= wanted[to];
    }
    if (taken != run) return std::nullopt;
    if (d != 0) {
      step = strides[d - 1];
      run = taken = 1;
    }
  }
  return to == 0 ? std::optional(out) : std::nullopt;
}

}  // namespace kintsugi::passes
