#include "pyapi/abc_registry.h"

#include <unordered_set>

#include "pyapi/errors.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

namespace {

bool watched = false;
uint64_t first = 0;

uint64_t token() {
  const PendingErrorScope kept;
  PyObject* function = known(Known::kAbcToken);
  const Ref<> number = function != nullptr ? steal(PyObject_CallNoArgs(function)) : Ref<>();
  const uint64_t count = number ? PyLong_AsUnsignedLongLong(number.get()) : 0;
  PyErr_Clear();
  return count;
}

}  // namespace

void watchAbcs() {
  if (!watched) {
    watched = true;
    first = token();
  }
}

namespace {

// The functions of a module.
void addCodes(PyObject* dict, std::unordered_set<PyObject*>& codes) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &value);) {
    if (PyFunction_Check(value)) codes.insert(PyFunction_GET_CODE(value));
  }
}

std::unordered_set<PyObject*>* codesOfAbcs() {
  auto* codes = new std::unordered_set<PyObject*>();
  const Ref<> abc = steal(importModule("abc")), collections = steal(importModule("collections.abc"));
  const Ref<> meta = abc ? steal(PyObject_GetAttrString(abc.get(), "ABCMeta")) : Ref<>();
  for (const char* name : {"__instancecheck__", "__subclasscheck__"}) {
    const Ref<> function = meta ? steal(PyObject_GetAttrString(meta.get(), name)) : Ref<>();
    if (function && PyFunction_Check(function.get())) codes->insert(PyFunction_GET_CODE(function.get()));
  }
  PyObject *name, *value;
  PyObject* classes = collections ? PyModule_GetDict(collections.get()) : nullptr;
  for (Py_ssize_t at = 0; classes != nullptr && PyDict_Next(classes, &at, &name, &value);) {
    const Ref<> dict = PyType_Check(value) ? steal(PyObject_GetAttrString(value, "__dict__")) : Ref<>();
    const Ref<> hook = dict ? steal(PyMapping_GetItemString(dict.get(), "__subclasshook__")) : Ref<>();
    PyErr_Clear();
    const Ref<> function = hook ? steal(PyObject_GetAttrString(hook.get(), "__func__")) : Ref<>();
    if (function && PyFunction_Check(function.get())) {
      codes->insert(PyFunction_GET_CODE(function.get()));
      addCodes(PyFunction_GET_GLOBALS(function.get()), *codes);  // the functions that the hooks share
    }
  }
  PyErr_Clear();
  return codes;
}

}  // namespace

bool asksAbc(PyCodeObject* code) {
  static constinit Lazy<const std::unordered_set<PyObject*>*> slot;
  const PendingErrorScope kept;
  return slot.get([] { return codesOfAbcs(); })->contains(reinterpret_cast<PyObject*>(code));
}

uint64_t abcRegistrations() { return watched ? token() - first : 0; }

}  // namespace kintsugi::pyapi
