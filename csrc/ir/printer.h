// The text form of a trace, for people, logs and file tests. `parseTrace(print(t))` equals `t` (ir/equal.h).
// docs/internals/ir.md has the grammar.
//
// Prints invalid traces too, as far as they go (a failed check dumps them): numbers that lie outside their
// tables are printed as they are, and what has no text becomes `?`. No GIL, no state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/trace.h"

namespace kintsugi::ir {

std::string print(const Trace& trace);
void printTo(std::string& out, const Trace& trace);

// Pieces, for messages: `%4`, `tensor<2>`, `tensor<f32,[8],cpu>`, `%1 = aten.relu.default %0 : tensor<0> snap
// !0`.
std::string printOperand(const Trace& trace, const Operand& operand);
std::string printInstruction(const Trace& trace, size_t index);
std::string printMeta(const TensorDesc& meta);

std::string_view recipeKindName(RecipeKind kind);
std::string_view returnActionName(ReturnAction action);  // empty: there is no such action
std::optional<RecipeKind> findRecipeKind(std::string_view name);
std::optional<Op> findOp(std::string_view text);

}  // namespace kintsugi::ir
