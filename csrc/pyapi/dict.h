// Dict look-ups and version tags.
//
// A dict's version tag changes with every change of the dict and is never reused by another dict, so an equal
// tag means the same dict with the same keys and values. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"
#include "pyapi/known_objects.h"
#include "pyapi/version.h"
#include KINTSUGI_VERSION_OBJECTS

namespace kintsugi::pyapi {

inline uint64_t dictVersion(PyObject* dict) { return *versionTag(dict); }

// collections.defaultdict itself, which CPython does not export.
inline bool isDefaultDict(const PyTypeObject* type) { return isKnown(type, Known::kDefaultDict); }

// The value for an exact-string key, borrowed; null without an exception when there is none.
inline PyObject* dictGet(PyObject* dict, PyObject* name) {
  const Py_hash_t hash = reinterpret_cast<PyASCIIObject*>(name)->hash;
  return hash == -1 ? PyDict_GetItemWithError(dict, name) : _PyDict_GetItem_KnownHash(dict, name, hash);
}

}  // namespace kintsugi::pyapi
