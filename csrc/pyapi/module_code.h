// All code objects that a module has made, and whether a module belongs to a package. See known_objects.h.
//
// A module's code is what its functions, and the functions of its classes, are made of: those whose globals
// are the module's dict, also behind decorators, and the code inside them. Ownership: borrowed from the
// module. Threads: the GIL is needed. Never leaves an exception pending.
#pragma once

#include <vector>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

std::vector<PyObject*> codeOfModule(PyObject* globals);

// Is the body of the module with these globals still being executed? Then not all of its code is there.
bool isInitializing(PyObject* globals);

// Was the module with these globals loaded from a folder of the package (a module with a `__path__`)?
bool isLoadedBy(PyObject* globals, PyObject* package);

}  // namespace kintsugi::pyapi
