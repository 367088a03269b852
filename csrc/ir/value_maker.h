// Which instruction gives a value. In a trace as it was recorded the instructions stand in the order of their
// results, so the search takes a number of steps by the logarithm of its length.
//
// Plain data, valid until the trace changes. No GIL. Example:
//
//   const Instruction* maker = makerOf(trace, value);
//   if (maker != nullptr && maker->op == Op::kInput) ...
#pragma once

#include "ir/trace.h"

namespace kintsugi::ir {

// Null: none of them does (a value that a side trace begins with).
const Instruction* makerOf(const Trace& trace, ValueId value);

}  // namespace kintsugi::ir
