// Binary operators and comparisons of classes that have special methods in Python.
//
// Nothing: the instruction is not one of these (nothing has happened). Thread: the recording one, GIL held.
#pragma once

#include <optional>

#include "capture/record_context.h"

namespace kintsugi::capture {

std::optional<Flow> overloadedOperator(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in);
std::optional<Flow> overloadedComparison(RecordContext& rec, ShadowFrame& f, Activation& act,
                                         const Instr& in);
// COMPARE_AND_TEST of any operands, as the call of a function that compares and then asks for the truth: an
// exit between the two goes on there.
Flow testComparison(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in);

}  // namespace kintsugi::capture
