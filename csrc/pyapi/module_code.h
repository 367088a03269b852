// All code objects that a module has made, and whether a module belongs to a package. See known_objects.h.
//
// A module's code is the code of its functions and of its classes' functions: those whose globals are the
// module's dict, also behind decorators, and the code inside them. Ownership: borrowed from the module.
// Threads: the GIL is needed. Never leaves an exception pending.
#pragma once

#include <string_view>
#include <vector>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

std::vector<PyObject*> codeOfModule(PyObject* globals);

// True while the body of the module with these globals is being executed. Not all of its code exists then.
bool isInitializing(PyObject* globals);

// True if the module with these globals was loaded from a folder of the package (a module with a `__path__`).
bool isLoadedBy(PyObject* globals, PyObject* package);

// True if these are the globals of a module that was imported under a name of the package ("torch").
bool areOfPackage(PyObject* globals, std::string_view package);

}  // namespace kintsugi::pyapi
