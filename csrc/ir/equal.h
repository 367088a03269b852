// Are two traces the same? Structural: instructions, recipes and snapshots are compared by what their
// operands mean, so that the order of the string and list tables does not matter. Floats are compared by
// their bits.
//
// Borrows both. No GIL, no state.
#pragma once

#include "ir/trace.h"

namespace kintsugi::ir {

bool equal(const Trace& a, const Trace& b);
// Both operands' tables are those of their traces.
bool equal(const Trace& a, const Operand& x, const Trace& b, const Operand& y);

}  // namespace kintsugi::ir
