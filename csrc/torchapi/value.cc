#include "torchapi/value.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

ValueKind kindOfType(ir::TypeKind type) {
  switch (type) {
    case ir::TypeKind::kNone:
      return ValueKind::kNone;
    case ir::TypeKind::kTensor:
      return ValueKind::kTensor;
    case ir::TypeKind::kInt:
      return ValueKind::kInt;
    case ir::TypeKind::kFloat:
      return ValueKind::kFloat;
    case ir::TypeKind::kBool:
      return ValueKind::kBool;
    case ir::TypeKind::kObject:
      return ValueKind::kObject;
  }
  return ValueKind::kEmpty;
}

void retainTensor(void* impl) { c10::raw::intrusive_ptr::incref(implOf(impl)); }

void releaseTensor(void* impl) { takenTensor(impl); }

void* unpackTensor(PyObject* tensor) {
  void* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  retainTensor(impl);
  return impl;
}

PyObject* wrapTensor(void* impl) {
  HANDLE_TH_ERRORS
  return THPVariable_Wrap(sharedTensor(impl));
  END_HANDLE_TH_ERRORS
}

bool unbox(PyObject* object, ValueKind wanted, Value& out) {
  switch (wanted) {
    case ValueKind::kNone:
      if (object != Py_None) {
        return false;
      }
      break;
    case ValueKind::kTensor:
      if (!isTensor(object) || !THPVariable_Unpack(object).defined()) {
        return false;
      }
      out.tensor = unpackTensor(object);
      break;
    case ValueKind::kInt: {
      int overflow = 0;
      if (!PyLong_CheckExact(object)) {
        return false;
      }
      out.i = PyLong_AsLongLongAndOverflow(object, &overflow);
      if (overflow != 0) {
        return false;
      }
      break;
    }
    case ValueKind::kFloat:
      if (!PyFloat_CheckExact(object)) {
        return false;
      }
      out.f = PyFloat_AS_DOUBLE(object);
      break;
    case ValueKind::kBool:
      if (!PyBool_Check(object)) {
        return false;
      }
      out.i = object == Py_True ? 1 : 0;
      break;
    case ValueKind::kObject:
    case ValueKind::kEmpty:
      Py_INCREF(object);
      out.object = object;
      out.kind = ValueKind::kObject;
      return true;
  }
  out.kind = wanted;
  return true;
}

PyObject* box(const Value& value) {
  switch (value.kind) {
    case ValueKind::kNone:
      Py_RETURN_NONE;
    case ValueKind::kTensor:
      return wrapTensor(value.tensor);
    case ValueKind::kInt:
      return PyLong_FromLongLong(value.i);
    case ValueKind::kFloat:
      return PyFloat_FromDouble(value.f);
    case ValueKind::kBool:
      return PyBool_FromLong(static_cast<long>(value.i));
    case ValueKind::kObject:
      Py_INCREF(value.object);
      return value.object;
    case ValueKind::kEmpty:
      break;
  }
  PyErr_SetString(PyExc_SystemError, "kintsugi: an empty trace value was used");
  return nullptr;
}

int64_t tensorSize(const void* impl, int64_t dim) {
  return static_cast<const at::TensorImpl*>(impl)->size(dim);
}
int64_t tensorStride(const void* impl, int64_t dim) {
  return static_cast<const at::TensorImpl*>(impl)->stride(dim);
}
int64_t tensorNumel(const void* impl) { return static_cast<const at::TensorImpl*>(impl)->numel(); }
int64_t tensorDim(const void* impl) { return static_cast<const at::TensorImpl*>(impl)->dim(); }

}  // namespace kintsugi::torchapi
