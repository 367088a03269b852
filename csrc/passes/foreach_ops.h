// Operators that do the same to each tensor of a list: `_foreach_add_([x, y], [u, v])` is `x.add_(u)` and
// `y.add_(v)`, which is what ATen runs on the CPU.
//
// Pure function, no GIL.
#pragma once

#include <optional>
#include <string_view>

#include "ops/operator.h"

namespace kintsugi::passes {

struct ForeachOperator {
  ops::Operator each = ops::Operator::kUnknown;  // what becomes of one element of each list
  bool inPlace = false;
};

// `aten._foreach_add_.List`. Nothing: none of these.
std::optional<ForeachOperator> findForeach(std::string_view name);

}  // namespace kintsugi::passes
