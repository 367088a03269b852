// Versions of dicts in CPython 3.14, which has none of its own. Others include pyapi/object_layout.h and the
// like.
//
// A dict is watched from when its version is first asked for. Before each change CPython calls us, and we
// give the dict another version. Versions are stored in bits of the dict's own tag that a build with the GIL
// leaves unused, above the watchers and the counter of CPython's optimizer. A dict that was never asked for
// has no version. Ownership: borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/since313/objects.h"

namespace kintsugi::pyapi {

// The bit of our watcher in tags; 0: there is none yet, or all watcher slots are taken.
extern uint64_t watcherBit;

// Watches the dict and gives it a version.
void numberStates(PyDictObject* dict);

inline uint64_t* versionTag(PyObject* dict) {
  auto* self = reinterpret_cast<PyDictObject*>(dict);
  if ((self->_ma_watcher_tag & watcherBit) == 0) [[unlikely]]
    numberStates(self);
  return &self->_ma_watcher_tag;
}

// Sets the function that makes the annotations when they are asked for (PEP 649); takes over the reference.
// The function must be new.
inline void setAnnotate(PyFunctionObject* function, PyObject* annotate) {
  function->func_annotate = annotate;
}

// Parts of the evaluator's messages.
inline constexpr const char* kNotAwaitable = "'%.100s' object can't be awaited";
inline constexpr bool kTellsSizes =
    true;  // of a tuple, list or dict that is unpacked, and of what split() gave

}  // namespace kintsugi::pyapi
