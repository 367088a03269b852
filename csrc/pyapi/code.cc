#include "pyapi/code.h"

namespace kintsugi::pyapi {

PyObject* keywordOnlyNames(const PyCodeObject* code) {
  const int first = code->co_argcount;
  return code->co_kwonlyargcount == 0
             ? nullptr
             : PyTuple_GetSlice(code->co_localsplusnames, first, first + code->co_kwonlyargcount);
}

// Uses names of PEP 523 that CPython 3.12 has renamed.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
Py_ssize_t requestCodeExtra(void (*free)(void*)) { return _PyEval_RequestCodeExtraIndex(free); }

bool setCodeExtra(PyCodeObject* code, Py_ssize_t index, void* extra) {
  return _PyCode_SetExtra(reinterpret_cast<PyObject*>(code), index, extra) >= 0;
}
#pragma GCC diagnostic pop

}  // namespace kintsugi::pyapi
