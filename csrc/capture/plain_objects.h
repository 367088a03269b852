// Plain objects: immutable, and without an identity that matters. They are pinned by their value.
//
// Pure functions; GIL held. Example: isPlainDeep((1, "a", (2.0, None)))
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

bool isPlain(PyObject* object);      // None, a number, a string ...
bool isPlainDeep(PyObject* object);  // plain, or a tuple of such; pinned by one comparison
bool isPlainTuple(PyObject* tuple);  // any tuple type with such elements
// True for objects of which only the identity matters: a class, function, module ...
bool isIdentityValue(PyObject* object);
bool isEmptyTuple(PyObject* object);  // false for null

}  // namespace kintsugi::capture
