// Short names of torch's scalar types (`f32`, `bf16`, `i64` ...), by the number that torch gives them.
//
// The numbers are torch's c10::ScalarType, which are part of its serialization format and do not change;
// torchapi's tests compare the table with the real enum. Constant data, no GIL.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kintsugi::ir {

// Empty when the number is not known here.
std::string_view dtypeName(int64_t scalarType);
std::optional<int64_t> dtypeNumber(std::string_view name);

}  // namespace kintsugi::ir
