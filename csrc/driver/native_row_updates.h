// Operators that write to rows of a copy (`index_add`), as torchapi/row_updates.h computes them.
//
// Pure function; any thread, no GIL.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "ir/trace.h"
#include "runtime/native_plan.h"

namespace kintsugi::driver {

// Does the operator copy its first argument, and then write to the copy?
bool writesToCopy(std::string_view name);

// `slots`: the slots of the operands that are values. Nothing: ATen's operator is called.
std::optional<runtime::NativeCall::Rows> rowUpdateOf(std::string_view name,
                                                     std::span<const ir::Operand> operands,
                                                     std::span<const uint32_t> slots);

}  // namespace kintsugi::driver
