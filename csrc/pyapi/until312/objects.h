// Names of CPython's private functions for objects up to 3.12, and what its instructions do differently.
//
// Ownership: what a look-up finds is a new reference. Threads: the GIL is needed.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// 1: found; 0: there is no such attribute; -1: an exception is pending.
inline int optionalAttribute(PyObject* object, PyObject* name, PyObject** value) {
  return _PyObject_LookupAttr(object, name, value);
}

// The version of everything that look-up on a type finds. 0: it has none, because it was changed, or can't
// have one.
inline unsigned validTypeVersion(const PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) != 0 ? type->tp_version_tag : 0;
}
inline void setTypeVersion(PyTypeObject* type, unsigned version) {
  type->tp_version_tag = version;
  type->tp_flags |= Py_TPFLAGS_VALID_VERSION_TAG;
}

// What `import` calls, from the builtins of a frame, which have to be a dict. Returns as above.
inline int importEntry(PyObject* builtins, PyObject** function) {
  *function = Py_XNewRef(PyDict_GetItemWithError(builtins, &_Py_ID(__import__)));
  return *function != nullptr ? 1 : PyErr_Occurred() != nullptr ? -1 : 0;
}

// `raise X from C` is no error if C() is no exception.
inline constexpr bool kChecksCause = false;

// For a call, the null of a plain callable is below it.
inline constexpr bool kNullBelowCallable = true;

}  // namespace kintsugi::pyapi
