// Plain objects: immutable ones without an identity that matters, which are pinned by comparing values.
//
// Pure functions; GIL held. Example: isPlainDeep((1, "a", (2.0, None)))
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

bool isPlain(PyObject* object);      // None, a number, a text ...
bool isPlainDeep(PyObject* object);  // plain, or a tuple of such: pinned by one compare
bool isPlainTuple(PyObject* tuple);  // any tuple type, such elements
// Compared by identity, and nothing else of it matters: a class, function, module ...
bool isIdentityValue(PyObject* object);

}  // namespace kintsugi::capture
