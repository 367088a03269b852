// Access to items without Python code that overrides it: reading and writing items, which
// super().__setitem__() of a dict's subclass does in the end, and the state of C's sequence iterators.
//
// Threads: the GIL is needed.
#pragma once

#include "pyapi/plain.h"
#include "pyapi/types.h"

namespace kintsugi::pyapi {

// `object[key] = value`, by the C code of the class. A null value deletes the item. 0, or -1 with an
// exception.
inline int storeItemInC(PyObject* object, PyObject* key, PyObject* value) {
  const char* name = value != nullptr ? "__setitem__" : "__delitem__";
  PyTypeObject* type = Py_TYPE(object);
  while (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && type->tp_base != nullptr) {
    PyObject* own = PyDict_GetItemString(dictOf(type), name);
    if (own != nullptr && !PyFunction_Check(own)) break;  // a class of an extension module
    type = type->tp_base;
  }
  if (type->tp_as_mapping != nullptr && type->tp_as_mapping->mp_ass_subscript != nullptr) {
    return type->tp_as_mapping->mp_ass_subscript(object, key, value);
  }
  return value != nullptr ? PyObject_SetItem(object, key, value) : PyObject_DelItem(object, key);
}

// True if `container[key]` is `item`, or a plain object that is equal to it. For lists and dicts.
inline bool holdsItem(PyObject* container, PyObject* key, PyObject* item) {
  PyObject* found = nullptr;
  if (PyList_Check(container)) {
    Py_ssize_t at = PyLong_Check(key) ? PyLong_AsSsize_t(key) : PyList_GET_SIZE(container);
    if (at < 0) at += PyList_GET_SIZE(container);
    if (at >= 0 && at < PyList_GET_SIZE(container)) found = PyList_GET_ITEM(container, at);
  } else if (PyDict_Check(container)) {
    found = PyDict_GetItemWithError(container, key);
  }
  PyErr_Clear();
  return found != nullptr && plainEquals(found, item);
}

// The state of an iterator of a list or tuple, forwards or backwards. When it finds no item at its index, it
// drops its sequence for good. From CPython 3.13 on, one of a list whose index is negative keeps it instead.
struct SequenceIterator {
  PyObject_HEAD;
  Py_ssize_t index;    // of the next item
  PyObject* sequence;  // null: it has ended
};

// Null: the object is no such iterator. CPython gives all four the same layout, but does not export it.
inline const SequenceIterator* sequenceIteratorOf(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  const bool one = type == &PyListIter_Type || type == &PyTupleIter_Type || type == &PyListRevIter_Type ||
                   type == &PyReversed_Type;
  return one && type->tp_basicsize == sizeof(SequenceIterator) ? reinterpret_cast<SequenceIterator*>(object)
                                                               : nullptr;
}

}  // namespace kintsugi::pyapi
