// What a field of a frame that holds an object is up to CPython 3.13: a pointer.
//
// Ownership: objectIn() borrows; fillSlot() puts a reference there that it does not count. Threads: the GIL
// is needed.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

inline PyObject* objectIn(PyObject* slot) { return slot; }
inline void fillSlot(PyObject*& slot, PyObject* object) { slot = object; }

}  // namespace kintsugi::pyapi
