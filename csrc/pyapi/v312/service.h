// Functions in Python that are there to have CPython's evaluator do what it exports no function for.
//
// Their frames are hidden, and no evaluator of ours runs them (isServiceFrame()). Ownership: a service lives
// as long as the process. Threads: the GIL is needed. Example: PyObject* none = makeService("def f():
// pass\n", nullptr, 0); PyObject_CallNoArgs(none);
#pragma once

#include <cstddef>
#include <cstdint>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// The function `f` that `source` defines, with `size` bytes of `code` in the place of its own, unless that is
// null. Null: an exception is pending.
PyObject* makeService(const char* source, const uint8_t* code, size_t size);

}  // namespace kintsugi::pyapi
