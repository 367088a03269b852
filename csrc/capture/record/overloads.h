// Binary operators and comparisons of classes that have special methods in Python.
//
// A result of nothing means that the instruction is not such an operator, and that nothing has been done.
// Thread: the recording one, GIL held.
#pragma once

#include <optional>

#include "capture/record_context.h"

namespace kintsugi::capture {

std::optional<Flow> overloadedOperator(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in);
std::optional<Flow> overloadedComparison(RecordContext& rec, ShadowFrame& f, Activation& act,
                                         const Instr& in);
// Records COMPARE_AND_TEST as a call of a polyfill that compares and then asks for the truth. An exit between
// the two goes on inside the polyfill.
Flow testComparison(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in);

}  // namespace kintsugi::capture
