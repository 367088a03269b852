// What CPython's private functions for objects are called up to 3.12, and what its instructions do in other
// ways.
//
// Ownership: what a look-up finds is a new reference. Threads: the GIL is needed.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// 1: found; 0: there is no such attribute; -1: an exception is pending.
inline int optionalAttribute(PyObject* object, PyObject* name, PyObject** value) {
  return _PyObject_LookupAttr(object, name, value);
}

// What `import` calls, in the builtins of a frame, which have to be a dict. The same answers.
inline int importEntry(PyObject* builtins, PyObject** function) {
  *function = Py_XNewRef(PyDict_GetItemWithError(builtins, &_Py_ID(__import__)));
  return *function != nullptr ? 1 : PyErr_Occurred() != nullptr ? -1 : 0;
}

// `raise X from C`, where C() is no exception: nobody says so.
inline constexpr bool kChecksCause = false;

// The null of a plain callable lies below it when it is called.
inline constexpr bool kNullBelowCallable = true;

}  // namespace kintsugi::pyapi
