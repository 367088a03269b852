// The parts of a slice object, as they are (PySlice_Unpack() makes numbers of them).
//
// Ownership: borrowed from the slice, which can't change. Threads: the GIL is needed.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

struct SliceParts {
  PyObject* start = nullptr;
  PyObject* stop = nullptr;
  PyObject* step = nullptr;
};
inline SliceParts partsOfSlice(PyObject* object) {
  const auto* slice = reinterpret_cast<PySliceObject*>(object);
  return {slice->start, slice->stop, slice->step};
}
// x[:]
inline bool isFullSlice(PyObject* slice) {
  const SliceParts parts = partsOfSlice(slice);
  return parts.start == Py_None && parts.stop == Py_None && parts.step == Py_None;
}

}  // namespace kintsugi::pyapi
