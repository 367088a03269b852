#include "capture/plain_objects.h"

#include "capture/enum_member.h"
#include "pyapi/plain.h"

namespace kintsugi::capture {

bool isPlain(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return object == Py_None || type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBool_Type ||
         type == &PyFloat_Type || type == &PyBytes_Type || type == &PyComplex_Type ||
         type == &PyEllipsis_Type || object == Py_NotImplemented;
}

bool isPlainDeep(PyObject* object) {
  if (isPlain(object)) return true;
  return PyTuple_CheckExact(object) && isPlainTuple(object);
}

bool isPlainTuple(PyObject* tuple) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    if (!isPlainDeep(PyTuple_GET_ITEM(tuple, i))) return false;
  }
  return true;
}

// True for immutable objects that are compared by identity, or by C code: enum members, dtypes, devices,
// types, functions.
bool isIdentityValue(PyObject* object) {
  if (PyType_Check(object) || PyFunction_Check(object) || PyModule_Check(object) || PyCFunction_Check(object))
    return true;
  return pyapi::isPlainOfLibrary(object) || isEnumMember(object) || pyapi::isBoundEnumMember(object);
}

bool isEmptyTuple(PyObject* object) {
  return object != nullptr && PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 0;
}

}  // namespace kintsugi::capture
