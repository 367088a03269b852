// Calls of torch while a function mode of the program's is active: the mode's Python code is recorded.
//
// Torch asks the mode before it computes anything. A function of kintsugi._polyfill_modes stands for the C
// code that does so; what the mode is given is asked of torch once, by a mode of our own. Thread: the
// recording one, GIL held.
#pragma once

#include <optional>

#include "capture/call_context.h"
#include "capture/interpreter.h"

namespace kintsugi::capture {

// Nothing: torch is not known to ask a mode, or what it gives to it is not among the arguments.
std::optional<Flow> underFunctionModes(CallContext& ctx, Shadow& result);
// What a mode is given for an attribute of a tensor, and calls: the `__get__` of its descriptor. Nothing: it
// is something else.
std::optional<Flow> attributeGetter(CallContext& ctx, Shadow& result);

}  // namespace kintsugi::capture
