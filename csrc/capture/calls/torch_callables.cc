// Tells which callables are torch's own. See torch_callables.h.
#include "capture/calls/torch_callables.h"

#include <unordered_map>
#include <unordered_set>

#include "pyapi/functions.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/types.h"
#include "torchapi/known_torch.h"
#include "torchapi/torch_patches.h"

namespace kintsugi::capture {

namespace {

using pyapi::known;
using torchapi::Known;

// The definitions of the C functions in torch's namespaces. Their memory is never freed, so no other function
// can have such an address.
using Definitions = std::unordered_set<const PyMethodDef*>;

Definitions torchDefinitions() {
  Definitions found;
  const pyapi::Ref<> inner = pyapi::steal(PyUnicode_InternFromString("__func__"));
  const auto add = [&](PyObject* dict) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
      pyapi::Ref<> function = pyapi::newRef(value);
      if (Py_TYPE(value) == &PyStaticMethod_Type) {
        function = pyapi::steal(PyObject_GetAttr(value, inner.get()));
        PyErr_Clear();
      }
      if (function && PyCFunction_Check(function.get())) found.insert(pyapi::definitionOf(function.get()));
    }
  };
  // torch.relu and the like are static methods of a class without a public name.
  if (known(Known::kVariableFunctions) != nullptr)
    add(pyapi::dictOf(pyapi::knownType(Known::kVariableFunctions)));
  for (const Known module : {Known::kTorchNn, Known::kTorchFft, Known::kTorchLinalg, Known::kTorchSpecial,
                             Known::kTorchNested, Known::kTorchSparse}) {
    if (known(module) != nullptr) add(PyModule_GetDict(known(module)));
  }
  return found;
}

// Methods of Tensor that torch defines in Python, and that only call the dispatcher and look at metadata.
constexpr const char* kTensorMethods[] = {
    "norm",         "split",    "unflatten",          "stft",          "istft",
    "lu",           "unique",   "unique_consecutive", "__rsub__",      "__rdiv__",
    "__rtruediv__", "__rpow__", "__floordiv__",       "__rfloordiv__", "__rlshift__",
    "__rrshift__",  "__rmod__", "__rmatmul__",        "__contains__"};

// Python functions, each with its code at the start.
using Functions = std::unordered_map<PyObject*, PyObject*>;

Functions torchFunctions() {
  Functions found;
  const auto add = [&found](PyObject* function) {
    if (found.try_emplace(function, PyFunction_GET_CODE(function)).second) {
      Py_INCREF(function);  // never freed
      Py_INCREF(PyFunction_GET_CODE(function));
    }
  };
  std::unordered_set<PyObject*> spaces;
  for (const Known module : {Known::kNnFunctional, Known::kTorchFunctional, Known::kJitInternal}) {
    if (known(module) != nullptr) spaces.insert(PyModule_GetDict(known(module)));
  }
  for (PyObject* space : spaces) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(space, &at, &key, &value)) {
      if (PyFunction_Check(value) && spaces.contains(PyFunction_GET_GLOBALS(value))) add(value);
    }
  }
  PyTypeObject* tensor = pyapi::knownType(Known::kTensor);
  for (const char* name : kTensorMethods) {
    PyObject* method = tensor != nullptr ? PyDict_GetItemString(pyapi::dictOf(tensor), name) : nullptr;
    if (method != nullptr && PyFunction_Check(method) &&
        torchapi::isTorchCode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(method)),
                              PyFunction_GET_GLOBALS(method)))
      add(method);
  }
  return found;
}

const Definitions& knownDefinitions() {
  static constinit pyapi::Lazy<const Definitions*> found;
  return *found.get([] { return new Definitions(torchDefinitions()); });
}

const Functions& knownFunctions() {
  static constinit pyapi::Lazy<const Functions*> found;
  return *found.get([] { return new Functions(torchFunctions()); });
}

}  // namespace

bool isTorchOperator(PyObject* callable) {
  return pyapi::isA(callable, Known::kOpOverload) || pyapi::isA(callable, Known::kOpOverloadPacket);
}

bool isProfilerMark(PyObject* callable) {
  return pyapi::isKnown(callable, Known::kRecordEnter) ||
         pyapi::isKnown(callable, Known::kRecordEnterDefault) ||
         pyapi::isKnown(callable, Known::kRecordExit) || pyapi::isKnown(callable, Known::kRecordExitOverload);
}

void findTorchCallables() {
  knownDefinitions();
  knownFunctions();
}

bool isTorchCallable(PyObject* callable) {
  if (PyCFunction_Check(callable)) return knownDefinitions().contains(pyapi::definitionOf(callable));
  if (Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type) {
    const PyTypeObject* owner = PyDescr_TYPE(callable);
    return pyapi::isKnown(owner, Known::kTensorBase) || pyapi::isKnown(owner, Known::kTensorMeta);
  }
  return isTorchOperator(callable);
}

bool isTorchFunctional(PyObject* function) {
  const Functions& functions = knownFunctions();
  const auto it = functions.find(function);
  return it != functions.end() && it->second == PyFunction_GET_CODE(function) &&
         torchapi::torchPatches().epoch == 0;
}

}  // namespace kintsugi::capture
