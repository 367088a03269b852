// Members of enumerations: each exists once, however it is looked up. Inside capture only. Threads: the GIL
// is needed. Owns nothing.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::capture {

bool isEnumMember(PyObject* object);
// True for a class of flags that looks its members up and combines them by enum's own code alone.
bool isPlainFlag(PyTypeObject* type);

}  // namespace kintsugi::capture
