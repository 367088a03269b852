// When a reshape needs no copy, and where its elements are then: ATen's rule.
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

// Of a tensor with elements; `wanted` has as many.
std::optional<std::vector<int64_t>> viewStrides(const ir::Strided<int64_t>& tensor,
                                                std::span<const int64_t> wanted);

}  // namespace kintsugi::passes
