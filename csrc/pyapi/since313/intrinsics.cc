// CPython's numbered intrinsics: since version 3.13 it exports their tables.
#include "pyapi/intrinsics.h"

#define Py_BUILD_CORE 1
#include <internal/pycore_intrinsics.h>
#undef Py_BUILD_CORE

namespace kintsugi::pyapi {

PyObject* callIntrinsic(uint32_t number, PyObject* value) {
  return _PyIntrinsics_UnaryFunctions[number].func(PyThreadState_Get(), value);
}

PyObject* callIntrinsic(uint32_t number, PyObject* first, PyObject* second) {
  return _PyIntrinsics_BinaryFunctions[number].func(PyThreadState_Get(), first, second);
}

PyObject* wrapAsyncGenValue(PyObject* value) { return callIntrinsic(INTRINSIC_ASYNC_GEN_WRAP, value); }

}  // namespace kintsugi::pyapi
