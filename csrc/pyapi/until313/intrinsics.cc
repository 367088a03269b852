// Functions that only CPython 3.14 and later need: earlier compilers emit no such instructions.
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
