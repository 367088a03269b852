// Functions that are there to have CPython's evaluator do what it exports no function for.
//
// They are put together from their instructions: making one runs no Python code (compile() would: audit
// hooks). Their frames are hidden, and no evaluator of ours runs them (isServiceFrame()). Ownership: a
// service lives as long as the process. Threads: the GIL is needed. Example: PyObject* none = makeService(0,
// {{raw::RESUME, 0, raw::RETURN_CONST, 0}}); PyObject_CallNoArgs(none);
#pragma once

#include <cstdint>
#include <span>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// A function of so many arguments (at most two), the first variables. `code` is its code units; its only
// constant is None, its stack two deep. Null: an exception is pending.
PyObject* makeService(int arguments, std::span<const uint8_t> code);

}  // namespace kintsugi::pyapi
