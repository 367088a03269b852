#include "capture/attempt.h"

#include "pyapi/errors.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

namespace {

PyObject* attempt(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "attempt() needs what to call");
    return nullptr;
  }
  pyapi::Ref<> result =
      pyapi::steal(PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(count - 1), kwnames));
  if (result) return PyTuple_Pack(1, result.get());
  return PyErr_ExceptionMatches(PyExc_Exception) ? pyapi::takeRaised() : nullptr;
}

}  // namespace

PyObject* attemptFunction() {
  static PyMethodDef definition = {"attempt", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(attempt)),
                                   METH_FASTCALL | METH_KEYWORDS, nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

}  // namespace kintsugi::capture
