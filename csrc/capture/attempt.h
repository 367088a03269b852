// A call that raised while it was recorded, under a handler of the program.
//
// A replay makes the call through attempt(), which returns the exception, or the tuple (value,) if there was
// none. Inside capture only. Thread: GIL. Example: attempt(torch.matmul, a, b).
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::capture {

// The function object; borrowed, never freed.
PyObject* attemptFunction();

}  // namespace kintsugi::capture
