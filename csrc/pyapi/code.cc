#include "pyapi/code.h"

#include "pyapi/opcodes.h"

namespace kintsugi::pyapi {

PyObject* keywordOnlyNames(const PyCodeObject* code) {
  const int first = code->co_argcount;
  return code->co_kwonlyargcount == 0
             ? nullptr
             : PyTuple_GetSlice(code->co_localsplusnames, first, first + code->co_kwonlyargcount);
}

Py_ssize_t requestCodeExtra(void (*free)(void*)) { return _PyEval_RequestCodeExtraIndex(free); }

bool setCodeExtra(PyCodeObject* code, Py_ssize_t index, void* extra) {
  return _PyCode_SetExtra(reinterpret_cast<PyObject*>(code), index, extra) >= 0;
}

int32_t jumpTarget(PyCodeObject* code, int32_t next) {
  // In this form caches are zero, so that none can be taken for a prefix of the argument.
  PyObject* bytes = PyCode_GetCode(code);
  if (bytes == nullptr) {
    PyErr_Clear();
    return next;
  }
  const auto* units = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes));
  uint32_t argument = units[2 * (next - 1) + 1];
  for (int32_t at = next - 2, shift = 8; at >= 0 && units[2 * at] == op::EXTENDED_ARG; --at, shift += 8) {
    argument |= static_cast<uint32_t>(units[2 * at + 1]) << shift;
  }
  Py_DECREF(bytes);
  return next + static_cast<int32_t>(argument);
}

}  // namespace kintsugi::pyapi
