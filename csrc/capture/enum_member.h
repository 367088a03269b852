// Inside capture only. A member of an enumeration: there is one of each, whatever looked it up.
// Threads: the GIL is needed. Owns nothing.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::capture {

bool isEnumMember(PyObject* object);
// A class of flags that looks its members up, and combines them, by enum's own code alone?
bool isPlainFlag(PyTypeObject* type);

}  // namespace kintsugi::capture
