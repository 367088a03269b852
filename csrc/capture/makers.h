// Python callables that make objects again: functions of kintsugi._polyfills, and types.
//
// Borrowed; GIL held. Example: PyObject* function = polyfill("turned_tuple");
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

PyObject* polyfill(const char* name);  // of kintsugi._polyfills; null: there is none
// The callable that makes an object like this one (a partial, an itemgetter ...): its type, or a function.
PyObject* makerOf(PyObject* object);

}  // namespace kintsugi::capture
