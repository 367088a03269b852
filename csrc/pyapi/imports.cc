#include "pyapi/imports.h"

namespace kintsugi::pyapi {

PyObject* importModule(const char* name) {
  const Ref<> text = steal(PyUnicode_FromString(name));
  if (!text) return nullptr;
  if (PyObject* module = PyImport_GetModule(text.get())) return module;
  if (PyErr_Occurred()) return nullptr;
  // Of a dotted name this gives the first part.
  const Ref<> first = steal(PyImport_ImportModuleLevelObject(text.get(), nullptr, nullptr, nullptr, 0));
  if (!first) return nullptr;
  PyObject* module = PyImport_GetModule(text.get());
  if (module == nullptr && !PyErr_Occurred()) {
    PyErr_Format(PyExc_ModuleNotFoundError, "No module named '%s'", name);
  }
  return module;
}

}  // namespace kintsugi::pyapi
