// Tuples, lists, dicts, sets and texts: their storage, and operations that CPython keeps to itself.
//
//   PyObject** items = listItems(list);      // valid until the list grows
//
// Ownership: arrays of items belong to their container. Threads: the GIL is needed. Invalidation: the array
// of a list moves when the list grows.
#pragma once

#include <climits>

#include "pyapi/internal.h"
#include "pyapi/version.h"
#include KINTSUGI_VERSION_OBJECTS

#define Py_BUILD_CORE 1
#include <internal/pycore_list.h>
#include <internal/pycore_unicodeobject.h>
#undef Py_BUILD_CORE

namespace kintsugi::pyapi {

inline PyObject** tupleItems(PyObject* tuple) { return reinterpret_cast<PyTupleObject*>(tuple)->ob_item; }
inline PyObject** listItems(PyObject* list) { return reinterpret_cast<PyListObject*>(list)->ob_item; }

// list.extend() of any iterable. A new reference to None, or null with an exception pending.
inline PyObject* extendList(PyObject* list, PyObject* iterable) {
  return _PyList_Extend(reinterpret_cast<PyListObject*>(list), iterable);
}

// A new reference to an empty dict with room for this many keys, or null with an exception pending.
inline PyObject* newDict(Py_ssize_t expected) { return _PyDict_NewPresized(expected); }
// dict.update(), but a key that is there already raises KeyError with the key. 0, or -1 with an exception.
inline int mergeUnique(PyObject* dict, PyObject* mapping) { return _PyDict_MergeEx(dict, mapping, 2); }

// set.update(). Negative: an exception is pending.
inline int updateSet(PyObject* set, PyObject* iterable) { return _PySet_Update(set, iterable); }
// Goes through a set or frozenset as PyDict_Next() does through a dict; the key is borrowed.
inline bool nextSetItem(PyObject* set, Py_ssize_t* at, PyObject** key) {
  Py_hash_t hash = 0;
  return _PySet_NextEntry(set, at, key, &hash) != 0;
}

inline bool equalTexts(PyObject* left, PyObject* right) { return _PyUnicode_Equal(left, right) > 0; }
// separator.join() of an array; a new reference.
inline PyObject* joinTexts(PyObject* separator, PyObject* const* items, Py_ssize_t count) {
  return _PyUnicode_JoinArray(separator, items, count);
}

// Of an exact int, of any size.
inline bool isNegativeInt(PyObject* number) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0 ? value < 0 : overflow < 0;
}
// -1 with an exception pending if the number does not fit.
inline int asInt(PyObject* number) {
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(number, &overflow);
  if (overflow == 0 && value >= INT_MIN && value <= INT_MAX) return static_cast<int>(value);
  PyErr_SetString(PyExc_OverflowError, "Python int too large to convert to C int");
  return -1;
}

// True if the `__spec__` is that of a module whose import has begun but not ended.
inline bool isInitializing(PyObject* spec) {
  PyObject* value = nullptr;
  if (spec != nullptr) optionalAttribute(spec, &_Py_ID(_initializing), &value);
  const bool found = value != nullptr && PyObject_IsTrue(value) > 0;
  Py_XDECREF(value);
  PyErr_Clear();
  return found;
}
// True for the function that `import` calls unless somebody has replaced builtins.__import__.
inline bool isBuiltinImport(const PyThreadState* tstate, PyObject* function) {
  return function == importFunction(tstate);
}

}  // namespace kintsugi::pyapi
