// The positional arguments of a call f(*iterable), which CPython takes from the iterable before the call.
//
//   f(*(g(x) for x in xs))      the generator is run here, so that the calls of g are recorded
//
// Ownership: the items go to the frame's stack. Threads: the recording one, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// For a call `f(*iterable)`, whose iterable is stack entry `at` from the top. If it is a generator of the
// trace, an object of a Python class, or a tensor of open size, its items are taken before the call, as the
// call would do. False: this has raised.
bool expandGenerator(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int at);

}  // namespace kintsugi::capture
