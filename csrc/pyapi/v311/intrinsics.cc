// CPython 3.11 has no numbered intrinsics.
#include "pyapi/intrinsics.h"

namespace kintsugi::pyapi {

PyObject* callIntrinsic(uint32_t number, PyObject*) {
  return PyErr_Format(PyExc_SystemError, "CPython 3.11 has no intrinsic %u", number);
}

PyObject* callIntrinsic(uint32_t number, PyObject* first, PyObject*) { return callIntrinsic(number, first); }

}  // namespace kintsugi::pyapi
