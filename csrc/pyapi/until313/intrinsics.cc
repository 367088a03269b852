// What CPython's evaluator does by functions of its own from 3.14 on: no compiler before writes such
// instructions.
#include "pyapi/intrinsics.h"

namespace kintsugi::pyapi {

namespace {

PyObject* unknown() {
  PyErr_SetString(PyExc_SystemError, "an instruction of a later CPython");
  return nullptr;
}

}  // namespace

PyObject* commonConstant(uint32_t) { return unknown(); }
PyObject* specialMethod(uint32_t, PyObject*) { return unknown(); }
PyObject* newInterpolation(PyObject*, PyObject*, int, PyObject*) { return unknown(); }
PyObject* newTemplate(PyObject*, PyObject*) { return unknown(); }

}  // namespace kintsugi::pyapi
