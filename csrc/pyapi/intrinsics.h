// Operations for which CPython's evaluator has numbered functions of its own: type parameters and aliases,
// special methods, template strings.
//
// Ownership: arguments are borrowed, results are new references (null with an exception pending). Threads:
// the GIL is needed. Only for the numbers of the running version (pyapi/v312/meaning.cc).
#pragma once

#include <cstdint>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// CALL_INTRINSIC_1 with this number.
PyObject* callIntrinsic(uint32_t number, PyObject* value);
// CALL_INTRINSIC_2: `first` is below `second` on the stack.
PyObject* callIntrinsic(uint32_t number, PyObject* first, PyObject* second);

// Since CPython 3.14.

// LOAD_COMMON_CONSTANT with this number.
PyObject* commonConstant(uint32_t number);
// LOAD_SPECIAL with this number: the special method of the object's class, bound.
PyObject* specialMethod(uint32_t number, PyObject* object);
// `{value!r:spec}` in a template string. `conversion` is as in FORMAT_VALUE; a null `spec` is empty.
PyObject* newInterpolation(PyObject* value, PyObject* text, int conversion, PyObject* spec);
// A template string made of two tuples.
PyObject* newTemplate(PyObject* strings, PyObject* interpolations);

}  // namespace kintsugi::pyapi
