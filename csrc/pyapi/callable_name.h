// What a callable is called, for messages and reports.
//
// Looking for the name runs no Python code: a `__getattr__`, a property or a metaclass of the program could
// change what is being recorded. What only such code could tell is called after its class.
//
// Threads: the GIL is needed. Never fails, and leaves a pending exception as it is.
// Example: callableName(len) is "len", of a bound method "Net.forward".
#pragma once

#include <Python.h>

#include <string>

namespace kintsugi::pyapi {

// A method with its class, as `__qualname__` has it; a C function that is bound to data of its own (pybind's
// records) by its bare name.
std::string callableName(PyObject* callable);

}  // namespace kintsugi::pyapi
