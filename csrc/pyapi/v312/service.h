// Service functions: functions that make CPython's evaluator do something for which it exports no function.
//
// They are put together from instructions, because making one must not run Python code (compile() would:
// audit hooks). Their frames are hidden, and no evaluator of ours runs them (isServiceFrame()). Ownership: a
// service function is never freed. Threads: the GIL is needed. Example:
//  PyObject* none = makeService(0, {{raw::RESUME, 0, raw::RETURN_CONST, 0}});
//  PyObject_CallNoArgs(none);
#pragma once

#include <cstdint>
#include <span>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// A function with this many arguments (at most two), which are its first variables. `code` has its code
// units. Its only constant is None, and its stack is two deep. Null: an exception is pending.
PyObject* makeService(int arguments, std::span<const uint8_t> code);

}  // namespace kintsugi::pyapi
