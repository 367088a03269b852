// The layout of classes, ints and code units since CPython 3.12. The version's own objects.h has the rest.
//
// Ownership: everything is borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>
#include <cstring>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// -- Classes and dicts

// The dict of the class itself, without what it inherits. Each interpreter has its own dicts for static
// types.
inline PyObject* dictOf(const PyTypeObject* type) { return _PyType_GetDict(const_cast<PyTypeObject*>(type)); }

// `builtins.__import__`, as it was when the interpreter started.
inline PyObject* importFunction(const PyThreadState* tstate) { return tstate->interp->imports.import_func; }

// -- Ints

// An int of at most one digit, whose value fits in 31 bits.
inline bool isSmallInt(PyObject* object) {
  return _PyLong_IsCompact(reinterpret_cast<PyLongObject*>(object)) != 0;
}
inline int64_t smallIntValue(PyObject* object) {
  return _PyLong_CompactValue(reinterpret_cast<PyLongObject*>(object));
}
// Compares two ints (or instances of subclasses), whatever their classes define.
inline bool sameDigits(PyObject* a, PyObject* b) {
  const _PyLongValue& x = reinterpret_cast<PyLongObject*>(a)->long_value;
  const _PyLongValue& y = reinterpret_cast<PyLongObject*>(b)->long_value;
  return x.lv_tag == y.lv_tag &&
         std::memcmp(x.ob_digit, y.ob_digit, (x.lv_tag >> _PyLong_NON_SIZE_BITS) * sizeof(digit)) == 0;
}

// -- Code units

inline uint8_t opcodeIn(_Py_CODEUNIT unit) { return unit.op.code; }
inline uint8_t argumentIn(_Py_CODEUNIT unit) { return unit.op.arg; }

}  // namespace kintsugi::pyapi
