// The representation of an object in a field of a frame, up to CPython 3.13: a pointer.
//
// Ownership: objectIn() borrows; fillSlot() stores a reference without counting it. Threads: the GIL is
// needed.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

inline PyObject* objectIn(PyObject* slot) { return slot; }
inline void fillSlot(PyObject*& slot, PyObject* object) { slot = object; }

}  // namespace kintsugi::pyapi
