// Values that async generators yield, up to CPython 3.12.
#include "pyapi/generator.h"

namespace kintsugi::pyapi {

namespace {

// The layout of CPython's private _PyAsyncGenWrappedValue.
struct WrappedValue {
  PyObject_HEAD PyObject* value;
};

}  // namespace

PyObject* wrapAsyncGenValue(PyObject* value) {
  auto* wrapped = PyObject_GC_New(WrappedValue, &_PyAsyncGenWrappedValue_Type);
  if (wrapped == nullptr) {
    return nullptr;
  }
  wrapped->value = Py_NewRef(value);
  PyObject_GC_Track(wrapped);
  return reinterpret_cast<PyObject*>(wrapped);
}

}  // namespace kintsugi::pyapi
