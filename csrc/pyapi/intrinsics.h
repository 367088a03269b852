// What CPython's evaluator does by functions that it keeps to itself and numbers: type parameters and
// aliases, special methods, template strings.
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

// From CPython 3.14 on.

// LOAD_COMMON_CONSTANT with that number.
PyObject* commonConstant(uint32_t number);
// LOAD_SPECIAL with that number: the special method of the object's class, bound.
PyObject* specialMethod(uint32_t number, PyObject* object);
// `{value!r:spec}` in a template string; `conversion` as FORMAT_VALUE has it, a null spec is an empty one.
PyObject* newInterpolation(PyObject* value, PyObject* text, int conversion, PyObject* spec);
// A template string of two tuples.
PyObject* newTemplate(PyObject* strings, PyObject* interpolations);

}  // namespace kintsugi::pyapi
