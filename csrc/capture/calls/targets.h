// Compiled callables inside a recording: the recorder records the function that they wrap.
//
// The type of compiled callables belongs to a higher layer, which registers how to find the wrapped function.
// GIL needed.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

using CompiledTarget =
    PyObject* (*)(PyObject* object);  // what it wraps (borrowed), or null for other objects
void setCompiledTarget(CompiledTarget function);
PyObject* compiledTargetOf(PyObject* object);

}  // namespace kintsugi::capture
