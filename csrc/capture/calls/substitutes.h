// Functions that the user has put in place of others in recorded code: kintsugi.substitute_in_graph().
//
// Kept for the process. Example: a program's Python version of operator.indexOf, which is recorded where the
// C function would be an opaque step. The GIL is needed.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

// From now on. `function` is a Python function that does what `original` does.
void substitute(PyObject* original, PyObject* function);
PyObject* substituteOf(PyObject* callable);  // borrowed; null: there is none

}  // namespace kintsugi::capture
