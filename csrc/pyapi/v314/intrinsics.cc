// Instructions of CPython 3.14 for which it exports functions and tables.
#include "pyapi/intrinsics.h"
#include "pyapi/ref.h"

#define Py_BUILD_CORE 1
#include <internal/pycore_interpolation.h>
#include <internal/pycore_template.h>
#undef Py_BUILD_CORE

namespace kintsugi::pyapi {

PyObject* commonConstant(uint32_t number) {
  return Py_NewRef(PyThreadState_Get()->interp->common_consts[number]);
}

PyObject* specialMethod(uint32_t number, PyObject* object) {
  const _Py_SpecialMethod& special = _Py_SpecialMethods[number];
  PyObject* method = _PyObject_LookupSpecial(object, special.name);
  if (method == nullptr && PyErr_Occurred() == nullptr) {
    const bool suggests = _PyEval_SpecialMethodCanSuggest(object, static_cast<int>(number)) != 0;
    PyErr_Format(PyExc_TypeError, suggests ? special.error_suggestion : special.error, object);
  }
  return method;
}

PyObject* newInterpolation(PyObject* value, PyObject* text, int conversion, PyObject* spec) {
  const Ref<> format = spec != nullptr ? newRef(spec) : steal(PyUnicode_FromString(""));
  return format ? _PyInterpolation_Build(value, text, conversion, format.get()) : nullptr;
}

PyObject* newTemplate(PyObject* strings, PyObject* interpolations) {
  return _PyTemplate_Build(strings, interpolations);
}

}  // namespace kintsugi::pyapi
