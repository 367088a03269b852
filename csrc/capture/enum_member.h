// Inside capture only. A member of an enumeration: there is one of each, whatever looked it up.
// Threads: the GIL is needed. Owns nothing.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::capture {

bool isEnumMember(PyObject* object);

}  // namespace kintsugi::capture
