// Replays a call that raised during recording inside the program's `try`.
//
// attempt(f, *args) calls f and returns the exception that it raised, or the tuple (value,) if it raised
// none. Inside capture only. Thread: GIL. Example: attempt(torch.matmul, a, b).
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::capture {

// The function object; borrowed, never freed.
PyObject* attemptFunction();

}  // namespace kintsugi::capture
