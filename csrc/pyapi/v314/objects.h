// How a dict's states are distinguished in CPython 3.14, which numbers none. pyapi/object_layout.h and its
// like are what others include.
//
// A dict whose version is asked for is watched from then on: before each change CPython calls us, and we give
// it another number. The numbers lie in the bits of the dict's own tag that a build with the GIL leaves
// unused, above the watchers and the counter of CPython's optimizer; a dict that has not been asked about has
// none. Ownership: borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/since313/objects.h"

namespace kintsugi::pyapi {

// The bit of our watcher in tags; 0: there is none yet, or no place for one.
extern uint64_t watcherBit;

// Watches the dict, and gives it a number.
void numberStates(PyDictObject* dict);

inline uint64_t* versionTag(PyObject* dict) {
  auto* self = reinterpret_cast<PyDictObject*>(dict);
  if ((self->_ma_watcher_tag & watcherBit) == 0) [[unlikely]]
    numberStates(self);
  return &self->_ma_watcher_tag;
}

// What makes the annotations when they are asked for (PEP 649); the reference is taken over. The function is
// new.
inline void setAnnotate(PyFunctionObject* function, PyObject* annotate) {
  function->func_annotate = annotate;
}

// What messages of the evaluator say.
inline constexpr const char* kNotAwaitable = "'%.100s' object can't be awaited";
inline constexpr bool kTellsSizes =
    true;  // of a tuple, list or dict that is unpacked, and of what split() gave

}  // namespace kintsugi::pyapi
