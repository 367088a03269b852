// Binary operators and comparisons of classes that have special methods in Python.
//
// Nothing: the instruction is not one of these (nothing has happened). Thread: the recording one, GIL held.
#pragma once

#include <optional>

#include "capture/recorder.h"

namespace kintsugi::capture {

std::optional<Flow> overloadedOperator(Recorder& rec, ShadowFrame& f, Activation& act, const Instr& in);
std::optional<Flow> overloadedComparison(Recorder& rec, ShadowFrame& f, Activation& act, const Instr& in);

}  // namespace kintsugi::capture
