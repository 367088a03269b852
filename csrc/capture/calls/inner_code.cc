#include "capture/calls/inner_code.h"

#include "pyapi/code.h"
#include "pyapi/functions.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// The content of a function's free variable; borrowed, or null.
PyObject* freeVariable(PyObject* function, const char* name) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  const int first = pyapi::firstFreeVariable(code);
  for (int i = 0; closure != nullptr && i < pyapi::freeVariableCount(code); ++i) {
    PyObject* variable = pyapi::variableName(code, first + i);
    if (PyUnicode_CompareWithASCIIString(variable, name) == 0)
      return PyCell_GET(PyTuple_GET_ITEM(closure, i));
  }
  return nullptr;
}

}  // namespace

PyObject* classMethodBehind(PyObject* bound, PyObject* name) {
  PyObject* order = pyapi::mroOf(reinterpret_cast<PyTypeObject*>(PyCFunction_GET_SELF(bound)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); ++i) {
    auto* cls = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
    PyObject* found = PyDict_GetItemWithError(pyapi::dictOf(cls), name);
    if (found == nullptr || Py_TYPE(found) != &PyClassMethodDescr_Type) continue;
    if (pyapi::methodDefinitionOf(found) == pyapi::definitionOf(bound)) return found;
  }
  return nullptr;
}

PyCodeObject* innerCode(const char* module, const char* function, const char* name) {
  pyapi::Ref<> imported = pyapi::steal(pyapi::importModule(module));
  pyapi::Ref<> outer = pyapi::steal(imported ? PyObject_GetAttrString(imported.get(), function) : nullptr);
  PyErr_Clear();
  if (!outer || !PyFunction_Check(outer.get())) return nullptr;
  PyObject* consts = pyapi::constantsOf(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(outer.get())));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(consts); ++i) {
    PyObject* found = PyTuple_GET_ITEM(consts, i);
    if (!PyCode_Check(found)) continue;
    auto* code = reinterpret_cast<PyCodeObject*>(found);
    if (PyUnicode_CompareWithASCIIString(pyapi::nameOf(code), name) == 0)
      return reinterpret_cast<PyCodeObject*>(Py_NewRef(found));
  }
  return nullptr;
}

bool isTorchWrapper(PyObject* function) {
  static constinit pyapi::Lazy<PyCodeObject*> codeSlot;
  PyCodeObject* code = codeSlot.get([] { return innerCode("torch._compile", "_disable_dynamo", "inner"); });
  return code != nullptr && PyFunction_GET_CODE(function) == reinterpret_cast<PyObject*>(code);
}

bool prepareTorchWrapper(PyObject* function) {
  if (!isTorchWrapper(function)) return false;
  static PyObject* name = PyUnicode_InternFromString("__dynamo_disable");
  PyObject* wrapped = freeVariable(function, "fn");
  PyObject* recursive = freeVariable(function, "recursive");
  if (wrapped == nullptr || recursive == nullptr || PyObject_HasAttr(wrapped, name)) return true;
  pyapi::Ref<> dynamo = pyapi::steal(pyapi::importModule("torch._dynamo"));
  pyapi::Ref<> disable = pyapi::steal(dynamo ? PyObject_GetAttrString(dynamo.get(), "disable") : nullptr);
  pyapi::Ref<> args = pyapi::steal(PyTuple_Pack(2, wrapped, recursive));
  pyapi::Ref<> options = pyapi::steal(Py_BuildValue("{sO}", "wrapping", Py_False));
  pyapi::Ref<> made = pyapi::steal(
      disable && args && options ? PyObject_Call(disable.get(), args.get(), options.get()) : nullptr);
  if (made) PyObject_SetAttr(wrapped, name, made.get());
  PyErr_Clear();
  return true;
}

}  // namespace kintsugi::capture
