// Can building an object by a recipe of the trace raise, or run code of the program? Plain functions of a
// trace. No GIL. Linear in the recipes that are reached. Example: a list of tensors can do neither.
#pragma once

#include "ir/trace.h"

namespace kintsugi::passes {

// True for a value and for built-in containers of values: building them can't raise.
bool isPlainBuild(const ir::Trace& trace, const ir::Operand& operand);
// True if building it runs no code of the program, so that it can be done at any time.
bool isQuietBuild(const ir::Trace& trace, const ir::Operand& operand);

}  // namespace kintsugi::passes
