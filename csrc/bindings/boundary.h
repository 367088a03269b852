// The extension's boundary: no C++ exception leaves a function that CPython calls.
//
// A failed check behind a slot or method becomes a RuntimeError with the code KTG0000. Calls of compiled
// callables have boundaries of their own further in, where the call can still be made in eager mode
// (driver/compiled_function.h).
//
//   PyMethodDef row = {"stats", atBoundary<stats>, METH_NOARGS, "Counters."};
//
// Ownership: as the function's. Threads: the GIL is needed. Invalidation: none.
#pragma once

#include <string>

#include "pyapi/ref.h"
#include "support/contain.h"

namespace kintsugi::bindings {

inline void setInternalError(const std::string& text) {
  if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "kintsugi: KTG0000 %s", text.c_str());
}

// What `body` returns, a new reference; null with an exception pending.
template <typename Body>
PyObject* containedCall(Body&& body) {
  PyObject* result = nullptr;
  const auto failure = contain([&] { result = body(); });
  if (failure) setInternalError(failure->text);
  return result;
}

// `function` behind the boundary. A new reference, or null with an exception pending.
template <PyCFunction function>
PyObject* atBoundary(PyObject* self, PyObject* args) {
  return containedCall([&] { return function(self, args); });
}

}  // namespace kintsugi::bindings
