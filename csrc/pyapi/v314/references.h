// The representation of an object in a field of a frame in CPython 3.14: a pointer with tags in its lower
// bits.
//
// Bit 0 says that the reference is not counted. References to immortal objects always have it, and the bit
// alone stands for no object. Both bits together mark an int that is no object: the place that an exception
// came from, on the stack of a frame that handles it. Ownership: objectIn() borrows; fillSlot() stores a
// reference without counting it. Threads: the GIL is needed.
#pragma once

#include "pyapi/internal.h"

#define Py_BUILD_CORE 1
#include <internal/pycore_interpframe.h>
#include <internal/pycore_stackref.h>
#undef Py_BUILD_CORE

namespace kintsugi::pyapi {

inline PyObject* objectIn(_PyStackRef slot) {
  return PyStackRef_IsNull(slot) ? nullptr : PyStackRef_AsPyObjectBorrow(slot);
}
inline void fillSlot(_PyStackRef& slot, PyObject* object) {
  slot = object != nullptr ? PyStackRef_FromPyObjectSteal(object) : PyStackRef_NULL;
}

}  // namespace kintsugi::pyapi
