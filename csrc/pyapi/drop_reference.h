// The callee of the steps in which a trace drops its reference to an object, so that its finalizer runs:
// `call #0, %1`.
//
// The replay knows it by its identity and gives up its references instead of calling it; whoever does call it
// gets None. Borrowed, never freed. The GIL is needed.
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
