// Binds the mode in which our interpreter evaluates every frame of the process (driver/interpret_all.h).
//
//   _C._set_interpret_all(True)       # CPython's own tests run so: tests/conformance/run.py
//
// Ownership: none. Called once, by the extension module's init function, with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi {

void bindInterpreter(nanobind::module_& m);

}  // namespace kintsugi
