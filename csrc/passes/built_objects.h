// What happens when an object is built by a recipe of the trace: whether that can raise or run code of the
// program's. Plain functions of a trace. No GIL. Linear in the recipes that are reached.
#pragma once

#include "ir/trace.h"

namespace kintsugi::passes {

// A value, or built-in containers of such: building it can't raise.
bool isPlainBuild(const ir::Trace& trace, const ir::Operand& operand);
// Building it runs no code of the program, so it may be done at any time.
bool isQuietBuild(const ir::Trace& trace, const ir::Operand& operand);

}  // namespace kintsugi::passes
