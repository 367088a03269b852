// Modules that the core needs itself.
//
// Idea: PyImport_ImportModule() asks the `__import__` of whatever frame is running, which may be the
// program's own (a sandbox without one, a test that pretends a package is missing). These functions ask
// sys.modules, then the import system itself. What the program imports goes its own way
// (capture/handlers/modules.cc).
//
// Ownership: a new reference. GIL needed; a first import runs Python code. Null: an exception is pending.
// Example: Ref<> module = steal(importModule("functools"));
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

PyObject* importModule(const char* name);

// The namespace of a module that is loaded, borrowed. Null: it is not, or what stands in its place is no
// module. Never leaves an exception pending.
PyObject* loadedNamespace(const char* name);

// Once, when the extension is loaded: what the core asks for later is found whatever becomes of sys.modules
// (tests put None there for a module that is to be missing). False: an exception is pending.
bool keepModules();

}  // namespace kintsugi::pyapi
