// Strides of tensors, and of views that reshape them. Whether a reshape needs a copy follows from ATen's
// rule.
//
//   viewStrides({{4, 6}, {6, 1}}, {2, 2, 6})   // {12, 6, 1}
//   viewStrides({{4, 6}, {1, 4}}, {24})        // nothing: it has to be copied
//
// Pure function, no GIL.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/tensor_desc.h"

namespace kintsugi::passes {

// The strides of a tensor of fixed sizes; those of a contiguous one if the description has none.
std::vector<int64_t> stridesOf(const ir::TensorDesc& desc);

// The strides of `tensor`, seen with the sizes `wanted`. Neither is empty. Nothing: a copy is needed.
std::optional<std::vector<int64_t>> viewStrides(const ir::Strided<int64_t>& tensor,
                                                std::span<const int64_t> wanted);

}  // namespace kintsugi::passes
