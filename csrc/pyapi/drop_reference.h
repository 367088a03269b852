// The callee of steps in which a trace drops its reference to an object, so that the object's finalizer runs:
// `call #0, %1`.
//
// A replay recognizes it by identity and drops its references instead of calling it. Any other caller gets
// None. Borrowed, never freed. The GIL is needed.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

inline PyObject* dropReferenceFunction() {
  static PyMethodDef definition = {"let_go", [](PyObject*, PyObject*) { return Py_NewRef(Py_None); }, METH_O,
                                   nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

}  // namespace kintsugi::pyapi
