#include "pyapi/imports.h"

namespace kintsugi::pyapi {

namespace {

// Modules of the standard library that the core needs in the middle of calls.
constexpr const char* kImportSystem = "_frozen_importlib";
constexpr const char* kAtStart[] = {"_functools", "_operator", "builtins", "copyreg",  "math",
                                    "enum",       "functools", "logging",  "operator", kImportSystem};

PyObject* kept = nullptr;  // dict of these modules; never freed

}  // namespace

bool keepModules() {
  Ref<> modules = steal(PyDict_New());
  for (const char* name : kAtStart) {
    const Ref<> module = steal(modules ? importModule(name) : nullptr);
    if (!module || PyDict_SetItemString(modules.get(), name, module.get()) < 0) return false;
  }
  kept = modules.release();
  return true;
}

PyObject* loadedNamespace(PyObject* name) {
  PyObject* module = kept != nullptr ? PyDict_GetItem(kept, name) : nullptr;
  if (module == nullptr) module = PyDict_GetItem(PyImport_GetModuleDict(), name);
  return module != nullptr && PyModule_Check(module) ? PyModule_GetDict(module) : nullptr;
}

PyObject* loadedNamespace(const char* name) {
  const Ref<> text = steal(PyUnicode_FromString(name));
  if (text) return loadedNamespace(text.get());
  PyErr_Clear();
  return nullptr;
}

bool isImportSystem(PyObject* globals) {
  static PyObject* const name = PyUnicode_InternFromString(kImportSystem);
  return globals == loadedNamespace(name);
}

PyObject* importModule(const char* name) {
  const Ref<> text = steal(PyUnicode_FromString(name));
  if (!text) return nullptr;
  if (PyObject* own = kept != nullptr ? PyDict_GetItemWithError(kept, text.get()) : nullptr) {
    return Py_NewRef(own);
  }
  if (PyErr_Occurred()) return nullptr;
  Ref<> module = steal(PyImport_GetModule(text.get()));
  if (!module && PyErr_Occurred()) return nullptr;
  if (!module) {
    // For a dotted name, this returns the first module.
    const Ref<> first = steal(PyImport_ImportModuleLevelObject(text.get(), nullptr, nullptr, nullptr, 0));
    if (!first) return nullptr;
    module = steal(PyImport_GetModule(text.get()));
  }
  if (!module || module.get() == Py_None) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ModuleNotFoundError, "No module named '%s'", name);
    return nullptr;
  }
  return module.release();
}

}  // namespace kintsugi::pyapi
