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

// The version of all that look-up on a type finds; 0: it has none, since it was changed, or can't have one.
inline unsigned validTypeVersion(const PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) != 0 ? type->tp_version_tag : 0;
}
inline void setTypeVersion(PyTypeObject* type, unsigned version) {
  type->tp_version_tag = version;
  type->tp_flags |= Py_TPFLAGS_VALID_VERSION_TAG;
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
