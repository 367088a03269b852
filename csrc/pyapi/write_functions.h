// The callees of steps that write to an object of the program: `call #0, $1, #2, %3` is `container[key] =
// value`.
//
// They do what the generic setters do, past a `__setattr__` or `__setitem__` of the class, whose code has
// been recorded. Each is made once, at its first use. Borrowed, never freed. The GIL is needed.
#pragma once

#include "pyapi/items.h"
#include "pyapi/ref.h"
#include "pyapi/types.h"

namespace kintsugi::pyapi {

namespace detail {

inline PyObject* noneUnless(int status) { return status < 0 ? nullptr : Py_NewRef(Py_None); }

// A function of two or three arguments; without a third one it deletes.
template <int (*write)(PyObject*, PyObject*, PyObject*)>
PyObject* callWrite(PyObject*, PyObject* args) {
  PyObject *target = nullptr, *key = nullptr, *value = nullptr;
  if (PyArg_UnpackTuple(args, "write", 2, 3, &target, &key, &value) == 0) return nullptr;
  return noneUnless(write(target, key, value));
}

template <int (*write)(PyObject*, PyObject*, PyObject*)>
PyObject* writeFunction(const char* name) {
  static PyMethodDef definition = {name, callWrite<write>, METH_VARARGS, nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

// As `object.__setattr__` and `type.__setattr__` do; no value deletes. A class's caches of look-ups are
// emptied.
inline int writeAttribute(PyObject* object, PyObject* name, PyObject* value) {
  return PyType_Check(object) ? setTypeAttribute(object, name, value)
                              : PyObject_GenericSetAttr(object, name, value);
}
inline int writeCell(PyObject* cell, PyObject* value, PyObject*) { return PyCell_Set(cell, value); }

}  // namespace detail

// `f(object, name, value)`; without a value it deletes the attribute.
inline PyObject* attributeWriter() {
  return detail::writeFunction<detail::writeAttribute>("write_attribute");
}
// `f(container, key, value)`; without a value it deletes the item.
inline PyObject* itemWriter() { return detail::writeFunction<storeItemInC>("write_item"); }
// `f(cell, value)`.
inline PyObject* cellWriter() { return detail::writeFunction<detail::writeCell>("write_cell"); }

}  // namespace kintsugi::pyapi
