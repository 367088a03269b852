// Python objects for tests, written as Python.
//
// Everything is evaluated in one namespace that lives as long as the process. Example: value("[1, 2]")
#pragma once

#include <gtest/gtest.h>

#include "pyapi/ref.h"

namespace kintsugi::capture::test {

inline PyObject* names() {
  static PyObject* dict = [] {
    PyObject* made = PyDict_New();
    PyDict_SetItemString(made, "__builtins__", PyEval_GetBuiltins());
    return made;
  }();
  return dict;
}

inline pyapi::Ref<> evaluate(const char* text, int start) {
  const pyapi::Ref<> code = pyapi::steal(Py_CompileString(text, "test", start));
  pyapi::Ref<> result = pyapi::steal(code ? PyEval_EvalCode(code.get(), names(), names()) : nullptr);
  if (!result) PyErr_Print();
  EXPECT_TRUE(static_cast<bool>(result)) << text;
  return result;
}
inline void run(const char* statements) { evaluate(statements, Py_file_input); }
inline pyapi::Ref<> value(const char* expression) { return evaluate(expression, Py_eval_input); }
inline bool holds(const char* expression) { return PyObject_IsTrue(value(expression).get()) == 1; }
inline PyTypeObject* typeNamed(const char* name) {
  return reinterpret_cast<PyTypeObject*>(PyDict_GetItemString(names(), name));
}

}  // namespace kintsugi::capture::test
