// What a field of a frame that holds an object is in CPython 3.14: a pointer, with tags in its lower bits.
//
// Bit 0 says that the reference is not counted: that of immortal objects always has it, and the bit alone
// stands for no object. Both bits together are those of an int that is no object: the place that an exception
// came from, on the stack of a frame that handles it. Ownership: objectIn() borrows; fillSlot() puts a
// reference there that it does not count. Threads: the GIL is needed.
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
