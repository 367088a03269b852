// Does an instruction fit its row of ops.def? Shared by the builders (debug builds) and the verifier.
//
// Borrows everything; no state, no GIL.
#pragma once

#include <span>
#include <string>

#include "ir/trace.h"

namespace kintsugi::ir {

// What is wrong with the operands and results of an `op` in `trace`; empty: nothing. Looks at kinds, counts
// and the types of values, not at whether the values are defined before it.
std::string checkSignature(const Trace& trace, Op op, std::span<const Operand> operands,
                           std::span<const Type> results);

// For people: what an operand is ("source", "int value %3" ...).
std::string describeOperand(const Trace& trace, const Operand& operand);

std::string_view typeKindName(TypeKind kind);
std::string_view operandKindName(OperandKind kind);

}  // namespace kintsugi::ir
