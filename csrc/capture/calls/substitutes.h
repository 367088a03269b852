// Functions that the user has put in place of others in recorded code: kintsugi.substitute_in_graph().
//
// Kept for the process. Example: the program has a Python version of operator.indexOf. It is recorded in
// place of the C function, which would be an opaque step. The GIL is needed.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

// Takes effect from now on. `function` is a Python function that does what `original` does.
void substitute(PyObject* original, PyObject* function);
PyObject* substituteOf(PyObject* callable);  // borrowed; null: there is none

}  // namespace kintsugi::capture
