// What CPython's evaluator does by functions that it keeps to itself and numbers: type parameters and
// aliases.
//
// Ownership: arguments are borrowed, results are new references (null with an exception pending). Threads:
// the GIL is needed. Only for the numbers of the running version (pyapi/v312/meaning.cc).
#pragma once

#include <cstdint>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// CALL_INTRINSIC_1 with that number.
PyObject* callIntrinsic(uint32_t number, PyObject* value);
// CALL_INTRINSIC_2: `first` lies below `second` on the stack.
PyObject* callIntrinsic(uint32_t number, PyObject* first, PyObject* second);

}  // namespace kintsugi::pyapi
