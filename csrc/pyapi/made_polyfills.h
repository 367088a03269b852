// Registers the code of a polyfill that is generated at run time. known_objects.h finds the others in their
// module.
//
// Ownership: the code object is held for good. Threads: GIL held. Example: addPolyfill(code), after which
// isPolyfill(code) is true and tracebacks don't show its frames.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

void addPolyfill(PyObject* code);

}  // namespace kintsugi::pyapi
