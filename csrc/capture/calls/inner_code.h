// What lies after a callable, by identity: the code of a function that another one defines, as all its
// closures share it.
//
// Example: static PyCodeObject* code = innerCode("functools", "singledispatch", "dispatch"). GIL held; what
// is found is kept for good by the function around it.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

// Null: the module (which is imported) has no such function.
PyCodeObject* innerCode(const char* module, const char* function, const char* name);

// The descriptor in a class or one of its bases that a class method of C code was bound from; borrowed, or
// null.
PyObject* classMethodBehind(PyObject* bound, PyObject* name);

// torch._compile._disable_dynamo(): the wrapper that keeps torch's own compiler out of a function.
bool isTorchWrapper(PyObject* function);
// What such a wrapper makes at its first call, and keeps as an attribute, is there before that call is
// recorded: the program sees nothing of it. True: the function is such a wrapper.
bool prepareTorchWrapper(PyObject* function);

}  // namespace kintsugi::capture
