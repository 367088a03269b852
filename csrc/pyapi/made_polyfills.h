// Polyfills that are made while the program runs, and so are code of no module. See known_objects.h.
//
// Ownership: the code object is held for good. Threads: GIL held. Example: addPolyfill(code), after which
// isPolyfill(code) is true and tracebacks don't show its frames.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

void addPolyfill(PyObject* code);

}  // namespace kintsugi::pyapi
