// Compiled functions inside a recording: the recorder looks through them to the function that they wrap.
//
// The type of compiled functions belongs to a higher layer, which registers how to see through it. GIL
// needed.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

using CompiledTarget =
    PyObject* (*)(PyObject* object);  // what it wraps (borrowed), or null for other objects
void setCompiledTarget(CompiledTarget function);
PyObject* compiledTargetOf(PyObject* object);

}  // namespace kintsugi::capture
