// The positional arguments of f(*iterable). Thread: the recording one, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// For a call `f(*iterable)`, whose iterable is stack entry `at` from the top. If it is a generator of the
// trace, an object of a Python class, or a tensor of open size, its items are taken before the call, as the
// call would do. False: this has raised.
bool expandGenerator(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int at);

}  // namespace kintsugi::capture
