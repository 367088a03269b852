// What CPython 3.13 keeps of the states of a dict. pyapi/object_layout.h and its like are what others
// include.
//
// Ownership: everything is borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/since313/objects.h"
#include "pyapi/until313/objects.h"

namespace kintsugi::pyapi {

// Moves the values that a dict shares with an instance into memory of the dict's own. The instance stores its
// attributes by way of the dict from then on, as after any other change that it can't share.
void takeValues(PyDictObject* dict);

// While a dict shares the values of an instance, `instance.name = value` changes it without a new version:
// what has its version looked at shares nothing.
inline uint64_t* versionTag(PyObject* dict) {
  auto* self = reinterpret_cast<PyDictObject*>(dict);
  if (self->ma_values != nullptr && self->ma_values->embedded != 0) [[unlikely]]
    takeValues(self);
  return versionTagOf(self);
}

}  // namespace kintsugi::pyapi
