// Modules that the core needs itself.
//
// PyImport_ImportModule() calls the `__import__` of whatever frame is running, which may be the program's own
// (a sandbox without one, a test that pretends that a package is missing). These functions ask sys.modules,
// and then the import system itself. Imports of the program are handled elsewhere
// (capture/handlers/modules.cc).
//
// Ownership: a new reference. GIL needed; a first import runs Python code. Null: an exception is pending.
// Example: Ref<> module = steal(importModule("functools"));
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

PyObject* importModule(const char* name);

// The namespace of a loaded module, borrowed. Null: it is not loaded, or something else is in its place.
// Never leaves an exception pending.
PyObject* loadedNamespace(const char* name);
PyObject* loadedNamespace(PyObject* name);

// True for the globals of the import system's own code, which runs what a module or a finder of the program
// does.
bool isImportSystem(PyObject* globals);

// Called once, when the extension is loaded. Keeps the modules that the core needs later, so that they are
// found whatever happens to sys.modules (tests put None there to hide a module). False: an exception is
// pending.
bool keepModules();

}  // namespace kintsugi::pyapi
