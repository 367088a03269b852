// All code objects that a module has made, and whether a module belongs to a package. See known_objects.h.
//
// A module's code is what its functions, and the functions of its classes, are made of: those whose globals
// are the module's dict, also after decorators, and the code inside them. Ownership: borrowed from the
// module. Threads: the GIL is needed. Never leaves an exception pending.
#pragma once

#include <string_view>
#include <vector>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

std::vector<PyObject*> codeOfModule(PyObject* globals);

// Is the body of the module with these globals still being executed? Then not all of its code is there.
bool isInitializing(PyObject* globals);

// Was the module with these globals loaded from a folder of the package (a module with a `__path__`)?
bool isLoadedBy(PyObject* globals, PyObject* package);

// Are these the globals of a module that has been imported under a name of the package ("torch")?
bool areOfPackage(PyObject* globals, std::string_view package);

}  // namespace kintsugi::pyapi
