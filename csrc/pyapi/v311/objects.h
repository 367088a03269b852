// The layout of instances, classes, ints and code units in CPython 3.11. Others include pyapi/object_layout.h
// and the like.
//
// Ownership: everything is borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "pyapi/until312/objects.h"
#include "pyapi/until313/objects.h"

namespace kintsugi::pyapi {

// -- Instances whose attributes are kept inline until somebody asks for their dict (managed dicts)

// Null: a dict has the attributes, or there are none.
inline PyDictValues* managedValues(PyObject* owner) { return *_PyObject_ValuesPointer(owner); }
inline PyObject** managedDictSlot(PyObject* owner) { return _PyObject_ManagedDictPointer(owner); }
// The dict in such a slot; null: there is none.
inline PyObject* dictIn(PyObject* const* slot) { return *slot; }

// -- Classes and dicts

// The dict of the class itself, without what it inherits.
inline PyObject* dictOf(const PyTypeObject* type) { return type->tp_dict; }
inline uint64_t* versionTag(PyObject* dict) { return versionTagOf(reinterpret_cast<PyDictObject*>(dict)); }

// `builtins.__import__`, as it was when the interpreter started.
inline PyObject* importFunction(const PyThreadState* tstate) { return tstate->interp->import_func; }

// -- Ints

// An int of at most one digit, whose value fits in 31 bits.
inline bool isSmallInt(PyObject* object) {
  const Py_ssize_t size = Py_SIZE(object);
  return size >= -1 && size <= 1;
}
inline int64_t smallIntValue(PyObject* object) {
  return static_cast<int64_t>(Py_SIZE(object)) * reinterpret_cast<PyLongObject*>(object)->ob_digit[0];
}
// Compares two ints (or instances of subclasses), whatever their classes define.
inline bool sameDigits(PyObject* a, PyObject* b) {
  const auto* x = reinterpret_cast<PyLongObject*>(a);
  const auto* y = reinterpret_cast<PyLongObject*>(b);
  const size_t digits = static_cast<size_t>(std::abs(Py_SIZE(a)));
  return Py_SIZE(a) == Py_SIZE(b) && std::memcmp(x->ob_digit, y->ob_digit, digits * sizeof(digit)) == 0;
}

// -- Code units

inline uint8_t opcodeIn(_Py_CODEUNIT unit) { return _Py_OPCODE(unit); }
inline uint8_t argumentIn(_Py_CODEUNIT unit) { return _Py_OPARG(unit); }

}  // namespace kintsugi::pyapi
