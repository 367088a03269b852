// The base of what kintsugi.compile() returns: an object that is called as the callable that it holds.
//
// Idea: a class in Python whose instances are called goes through two C functions and a tuple before the call
// reaches its `__call__`; each counts towards the recursion limit, so that a function which calls itself by a
// compiled name would come half as deep as in eager mode. Instances of subclasses of this type have a
// vectorcall of their own, which passes the arguments on as they are: no frame, no tuple, no level more.
//
// Ownership: an instance owns what it holds (the attribute `_kintsugi_call`). Threads: GIL.
#pragma once

#include <Python.h>

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

// What an instance holds (borrowed); null for any other object, and for one that holds nothing yet.
PyObject* heldCall(PyObject* object);

void bindCallHolder(nanobind::module_& module);

}  // namespace kintsugi::bindings
