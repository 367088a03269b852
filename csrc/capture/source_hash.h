// The hash of a source's path. It is the same in all recordings of a callable, so what one recording learns
// helps the next. Attributes and entries are distinguished by their keys, not by the objects that are found
// there.
//
// Pure functions. The GIL is needed: hashes of keys are Python's.
#pragma once

#include <cstdint>

#include "guard/source.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

inline constexpr uint64_t kNoParent = 17;  // the hash above a root

uint64_t mixHash(uint64_t a, uint64_t b);
// `parent`: the parent's hash, or kNoParent. `key` may be null.
uint64_t sourceHash(uint64_t parent, guard::SourceKind kind, PyObject* key, int64_t index);

}  // namespace kintsugi::capture
