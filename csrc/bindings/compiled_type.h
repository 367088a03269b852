// The Python type `kintsugi._C.Compiled`: a callable with vectorcall over driver::CompiledFunction.
//
// Written against CPython's C API, not nanobind, because this call is the product's hot path. GIL needed
// everywhere.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

void bindCompiled(nanobind::module_& module);
// What a Compiled wraps (borrowed), or null for any other object.
PyObject* compiledTarget(PyObject* object);
void resetAllCompiled();

}  // namespace kintsugi::bindings
