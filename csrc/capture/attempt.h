// Inside capture only: a call that raised while it was recorded, under a handler of the program.
//
// A replay makes it through attempt(), which gives the exception as its result: (value,) when there was none.
// Thread: GIL. Example: attempt(torch.matmul, a, b).
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::capture {

// The function object; borrowed, never freed.
PyObject* attemptFunction();

}  // namespace kintsugi::capture
