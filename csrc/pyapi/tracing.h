// Events for functions set by sys.settrace() and sys.setprofile(), in the only case that our interpreter
// meets: the function is set while an instruction of ours runs, and that instruction raises. (Before their
// next instruction, frames are handed to CPython's evaluator, which sends all other events.)
//
// Threads: the GIL is needed. The pending exception is kept, unless the tracing function raises: then that is
// pending.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// Sends the event for an exception that passes through `frame`, the current frame.
void traceException(PyThreadState* tstate, _PyInterpreterFrame* frame);

// Sends the event for `frame` being left by the pending exception.
void traceUnwind(PyThreadState* tstate, _PyInterpreterFrame* frame);

}  // namespace kintsugi::pyapi
