#include "pyapi/arguments.h"

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

namespace {

// The vectorcall function of new Python functions, which CPython 3.13 does not export. Null with an exception
// pending if memory runs out.
vectorcallfunc findVectorcall() {
  Ref<> code = steal(reinterpret_cast<PyObject*>(PyCode_NewEmpty("", "", 1)));
  Ref<> globals = steal(code ? PyDict_New() : nullptr);
  Ref<> function = steal(globals ? PyFunction_New(code.get(), globals.get()) : nullptr);
  return function ? reinterpret_cast<PyFunctionObject*>(function.get())->vectorcall : nullptr;
}

}  // namespace

PyObject* Arguments::callFunction(PyObject* function) const {
  static vectorcallfunc vectorcall = nullptr;  // the GIL guards it
  if (vectorcall == nullptr) vectorcall = findVectorcall();
  return vectorcall != nullptr ? vectorcall(function, data_, positional_, kwnames_) : nullptr;
}

}  // namespace kintsugi::pyapi
