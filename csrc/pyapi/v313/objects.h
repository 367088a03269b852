// Versions of dicts in CPython 3.13. Others include pyapi/object_layout.h and the like.
//
// Ownership: everything is borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/since313/objects.h"
#include "pyapi/until313/objects.h"

namespace kintsugi::pyapi {

// Moves the values that a dict shares with an instance into memory of the dict's own. From then on, the
// instance stores its attributes through the dict, as after any other change that can't be shared.
void takeValues(PyDictObject* dict);

// While a dict shares the values of an instance, `instance.name = value` changes the dict without a new
// version. So the sharing ends when a version is asked for.
inline uint64_t* versionTag(PyObject* dict) {
  auto* self = reinterpret_cast<PyDictObject*>(dict);
  if (self->ma_values != nullptr && self->ma_values->embedded != 0) [[unlikely]]
    takeValues(self);
  return versionTagOf(self);
}

}  // namespace kintsugi::pyapi
