// The hash of a source's path. It is the same in all recordings of a callable, so what one recording learns
// helps the next. Attributes and entries are distinguished by their keys, not by the objects that are found
// there.
//
// Pure functions. The GIL is needed: hashes of keys are Python's. Inline: some ten thousand are computed for
// a first call.
#pragma once

#include <cstdint>

#include "guard/source.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

inline constexpr uint64_t kNoParent = 17;  // the hash above a root

inline uint64_t mixHash(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15ull + (a << 6) + (a >> 2);
  a *= 0xff51afd7ed558ccdull;
  return a ^ (a >> 33);
}
// `parent`: the parent's hash, or kNoParent. `key` may be null.
inline uint64_t sourceHash(uint64_t parent, guard::SourceKind kind, PyObject* key, int64_t index) {
  uint64_t hash = mixHash(parent, static_cast<uint64_t>(kind) + 1);
  if (key != nullptr) {
    hash = mixHash(hash, PyUnicode_CheckExact(key) || PyLong_CheckExact(key)
                             ? static_cast<uint64_t>(PyObject_Hash(key))
                             : reinterpret_cast<uint64_t>(key));
  }
  return mixHash(hash, static_cast<uint64_t>(index));
}

}  // namespace kintsugi::capture
