// The positional arguments of f(*iterable). Thread: the recording one, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// Stack entry `at` (from the top) is the iterable of a call: its items are taken before the call, as the call
// would do, where they come from a generator of the trace, from Python, or from a tensor of open size. False:
// that has raised.
bool expandGenerator(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int at);

}  // namespace kintsugi::capture
