// Finds callables behind other callables, by identity. Example: the code of a function that another function
// defines, which all its closures share.
//
// Example: static PyCodeObject* code = innerCode("functools", "singledispatch", "dispatch"). GIL held; what
// is found is kept for good by the function around it.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

// Null if the module (which is imported) has no such function.
PyCodeObject* innerCode(const char* module, const char* function, const char* name);

// The class method descriptor, in a class or a base, that the C method `bound` was bound from; borrowed, or
// null.
PyObject* classMethodBehind(PyObject* bound, PyObject* name);

// True for a wrapper made by torch._compile._disable_dynamo(), which keeps torch's own compiler out of a
// function.
bool isTorchWrapper(PyObject* function);
// Such a wrapper makes an object at its first call and keeps it as an attribute. Makes this object now, so
// that the recording does not see it being made. True: the function is such a wrapper.
bool prepareTorchWrapper(PyObject* function);

}  // namespace kintsugi::capture
