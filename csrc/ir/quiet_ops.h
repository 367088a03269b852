// Quiet calls: calls of operators that draw random numbers or write to their arguments in general, but not
// with these arguments.
//
// Ownership: none. Threads: any. Invalidation: none. Example: `aten.dropout.default %0, 0.1, false` is quiet.
#pragma once

#include "ir/trace.h"

namespace kintsugi::ir {

// Is it one of these operators at all?
bool mayBeQuiet(const Trace& trace, const Instruction& instruction);
// It is, and the argument is a constant that says so.
bool isQuiet(const Trace& trace, const Instruction& instruction);

}  // namespace kintsugi::ir
