// Quiet calls: calls of operators that draw random numbers or write to their arguments in general, but not
// with these arguments.
//
// Ownership: none. Threads: any. Invalidation: none. Example: `aten.dropout.default %0, 0.1, false` is quiet.
#pragma once

#include "ir/trace.h"

namespace kintsugi::ir {

// Is the operator one of these, with a constant argument that makes it quiet?
bool isQuiet(const Trace& trace, const Instruction& instruction);
// Does the call draw random numbers or write to its arguments? `impure`: what is known of the operator in
// general.
bool isImpure(const Trace& trace, const Instruction& instruction, bool impure);

}  // namespace kintsugi::ir
