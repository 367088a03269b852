// Where the elements of a tensor are; when a reshape needs no copy, and where its elements are then: ATen's
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

// The strides of a tensor of fixed sizes, also where its description leaves out that it is packed.
std::vector<int64_t> stridesOf(const ir::TensorDesc& desc);

// Of a tensor with elements; `wanted` has as many.
std::optional<std::vector<int64_t>> viewStrides(const ir::Strided<int64_t>& tensor,
                                                std::span<const int64_t> wanted);

}  // namespace kintsugi::passes
