// Fast paths: arithmetic, comparison and indexing of small exact ints, floats, lists and tuples, without the
// type slots. Every function returns a new reference, or null without an exception for what it does not
// cover; the caller then takes the general way.
//
//   if (PyObject* sum = fastIntOp(NB_ADD, left, right)) return sum;
//   return PyNumber_Add(left, right);
//
// Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"
#include "pyapi/opcodes.h"
#include KINTSUGI_VERSION_OBJECTS

namespace kintsugi::pyapi {

// True if an int may be a value of a trace.
inline bool fitsInt64(PyObject* object) {
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

inline PyObject* fastIntOp(uint32_t op, PyObject* left, PyObject* right) {
  if (!isSmallInt(left) || !isSmallInt(right)) {
    return nullptr;
  }
  const int64_t a = smallIntValue(left);
  const int64_t b = smallIntValue(right);
  switch (op) {
    case op::NB_ADD:
    case op::NB_INPLACE_ADD:
      return PyLong_FromLongLong(a + b);
    case op::NB_SUBTRACT:
    case op::NB_INPLACE_SUBTRACT:
      return PyLong_FromLongLong(a - b);
    case op::NB_MULTIPLY:
    case op::NB_INPLACE_MULTIPLY:
      return PyLong_FromLongLong(a * b);
    case op::NB_AND:
    case op::NB_INPLACE_AND:
      return PyLong_FromLongLong(a & b);
    case op::NB_FLOOR_DIVIDE:
    case op::NB_INPLACE_FLOOR_DIVIDE:
      return a >= 0 && b > 0 ? PyLong_FromLongLong(a / b) : nullptr;
    case op::NB_REMAINDER:
    case op::NB_INPLACE_REMAINDER:
      return a >= 0 && b > 0 ? PyLong_FromLongLong(a % b) : nullptr;
    default:
      return nullptr;
  }
}

inline PyObject* fastFloatOp(uint32_t op, PyObject* left, PyObject* right) {
  const double a = PyFloat_AS_DOUBLE(left);
  const double b = PyFloat_AS_DOUBLE(right);
  switch (op) {
    case op::NB_ADD:
    case op::NB_INPLACE_ADD:
      return PyFloat_FromDouble(a + b);
    case op::NB_SUBTRACT:
    case op::NB_INPLACE_SUBTRACT:
      return PyFloat_FromDouble(a - b);
    case op::NB_MULTIPLY:
    case op::NB_INPLACE_MULTIPLY:
      return PyFloat_FromDouble(a * b);
    case op::NB_TRUE_DIVIDE:
    case op::NB_INPLACE_TRUE_DIVIDE:
      return b != 0.0 ? PyFloat_FromDouble(a / b) : nullptr;
    default:
      return nullptr;
  }
}

template <typename T>
PyObject* compareValues(uint32_t op, T a, T b) {
  bool result = false;
  switch (op) {
    case Py_LT:
      result = a < b;
      break;
    case Py_LE:
      result = a <= b;
      break;
    case Py_EQ:
      result = a == b;
      break;
    case Py_NE:
      result = a != b;
      break;
    case Py_GT:
      result = a > b;
      break;
    default:
      result = a >= b;
      break;
  }
  return Py_NewRef(result ? Py_True : Py_False);
}

inline PyObject* fastIntCompare(uint32_t op, PyObject* left, PyObject* right) {
  return isSmallInt(left) && isSmallInt(right) ? compareValues(op, smallIntValue(left), smallIntValue(right))
                                               : nullptr;
}
inline PyObject* fastFloatCompare(uint32_t op, PyObject* left, PyObject* right) {
  return compareValues(op, PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));
}

// container[key] for lists and tuples with a small non-negative index that is in range.
inline PyObject* fastItem(PyObject* container, PyObject* key) {
  if (!PyLong_CheckExact(key) || !isSmallInt(key)) {
    return nullptr;
  }
  const int64_t index = smallIntValue(key);
  if (PyList_CheckExact(container)) {
    return index >= 0 && index < PyList_GET_SIZE(container) ? Py_NewRef(PyList_GET_ITEM(container, index))
                                                            : nullptr;
  }
  if (PyTuple_CheckExact(container)) {
    return index >= 0 && index < PyTuple_GET_SIZE(container) ? Py_NewRef(PyTuple_GET_ITEM(container, index))
                                                             : nullptr;
  }
  return nullptr;
}

}  // namespace kintsugi::pyapi
