// The id of an operator, for headers that only hand it on. ops/operator.h has the ids, and what is known of
// each.
#pragma once

#include <cstdint>

namespace kintsugi::ops {

enum class Operator : uint16_t;

}  // namespace kintsugi::ops
