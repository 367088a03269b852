// The positional arguments of a call f(*iterable), which CPython makes a tuple of before the call.
//
//   f(*(g(x) for x in xs))      the generator is run here, so that the calls of g are recorded
//
// Ownership: the items go to the frame's stack. Threads: the recording one, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// For a call `f(*iterable)`, whose iterable is stack entry `at` from the top (1, or 2 below its keywords). If
// the trace makes its items one by one (a generator, an object of a Python class, a tensor),
// they are taken before the call, as the call would do. False: this has raised.
bool takeArguments(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int at);

}  // namespace kintsugi::capture
