// Quiet calls: calls of operators that draw random numbers or write to their arguments in general, but not
// with these arguments.
//
// Ownership: none. Threads: any. Invalidation: none. Example: `aten.dropout.default %0, 0.1, false` is quiet.
#pragma once

#include "ir/trace.h"

namespace kintsugi::ir {

// It is one of these operators, and an argument is a constant that says so.
bool isQuiet(const Trace& trace, const Instruction& instruction);
// Does an operator draw random numbers or write to its arguments? `impure`: what is known of the operator
// where it is none of these.
bool isImpure(const Trace& trace, const Instruction& instruction, bool impure);

}  // namespace kintsugi::ir
