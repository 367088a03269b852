// The version that CPython gives each state of each dict, and the parts of functions, up to 3.13.
//
// Ownership: the number is borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // watchers are to take its place, which see less
inline uint64_t* versionTagOf(PyDictObject* dict) { return &dict->ma_version_tag; }
#pragma GCC diagnostic pop

// Functions have no function that makes their annotations (PEP 649), so no instruction sets one.
inline void setAnnotate(PyFunctionObject*, PyObject*) {}

// Parts of the evaluator's messages.
inline constexpr const char* kNotAwaitable = "object %.100s can't be used in 'await' expression";
inline constexpr bool kTellsSizes =
    false;  // of a tuple, list or dict that is unpacked, and of what split() gave

}  // namespace kintsugi::pyapi
