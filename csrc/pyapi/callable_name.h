// The name of a callable, for messages and reports.
//
// Finding the name runs no Python code, because a `__getattr__`, a property or a metaclass of the program
// could change what is being recorded. A callable whose name only such code could tell is named after its
// class.
//
// Threads: the GIL is needed. Never fails, and leaves a pending exception as it is.
// Example: callableName(len) is "len", of a bound method "Net.forward".
#pragma once

#include <Python.h>

#include <string>

namespace kintsugi::pyapi {

// A method has its class in front, as in `__qualname__`. A C function that is bound to data of its own (a
// record of pybind) has only its bare name.
std::string callableName(PyObject* callable);

}  // namespace kintsugi::pyapi
