// The layout of instances in CPython 3.12. Others include pyapi/object_layout.h and the like.
//
// Ownership: everything is borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/since312/objects.h"
#include "pyapi/until312/objects.h"
#include "pyapi/until313/objects.h"

namespace kintsugi::pyapi {

// -- Instances whose attributes are stored inline until somebody asks for their dict (managed dicts). One
// word has the dict, or, with the lowest bit set, the address of the values.

// Null: a dict has the attributes, or there are none.
inline PyDictValues* managedValues(PyObject* owner) {
  const PyDictOrValues word = *_PyObject_DictOrValuesPointer(owner);
  return _PyDictOrValues_IsValues(word) != 0 ? _PyDictOrValues_GetValues(word) : nullptr;
}
inline PyObject** managedDictSlot(PyObject* owner) { return &_PyObject_DictOrValuesPointer(owner)->dict; }
// The dict in such a slot; null: there is none.
inline PyObject* dictIn(PyObject* const* slot) {
  return (reinterpret_cast<uintptr_t>(*slot) & 1) == 0 ? *slot : nullptr;
}

inline uint64_t* versionTag(PyObject* dict) { return versionTagOf(reinterpret_cast<PyDictObject*>(dict)); }

}  // namespace kintsugi::pyapi
