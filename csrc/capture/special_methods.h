// Special methods of types, looked up as CPython does: in the type, not in the object. Descriptors.
//
// Nothing here runs Python code, and no guard is added: the caller guards the type's version. The GIL is
// needed. Example: if (PyObject* method = pythonMethod(object, "__len__")) ... it is called as a frame
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

// Borrowed from the type; null if it has none.
PyObject* specialMethod(PyTypeObject* type, const char* name);
// The Python function that is the special method of an object's type, borrowed from it; null: there is none,
// or it is C code.
PyObject* pythonMethod(PyObject* object, const char* name);
// True for the descriptor of an entry of `__slots__`.
bool isSlot(PyObject* descriptor);
// True for a property and for objects of subclasses that get and set as properties do (torch's
// dependent_property).
bool isProperty(PyObject* descriptor);
bool isFunctionName(PyObject* name);  // an attribute that names a function: `__name__` ...

}  // namespace kintsugi::capture
