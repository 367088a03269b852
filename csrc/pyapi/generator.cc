#include "pyapi/generator.h"

namespace kintsugi::pyapi {

namespace {

bool isCoroutine(PyObject* object) {
  if (PyCoro_CheckExact(object)) {
    return true;
  }
  return PyGen_CheckExact(object) &&
         (reinterpret_cast<PyGenObject*>(object)->gi_code->co_flags & CO_ITERABLE_COROUTINE) != 0;
}

// The layout of CPython's private _PyAsyncGenWrappedValue.
struct WrappedValue {
  PyObject_HEAD PyObject* value;
};

}  // namespace

PyObject* delegatesTo(PyGenObject* generator) {
  if (generator->gi_frame_state >= FRAME_CLEARED || generator->gi_frame_state == FRAME_CREATED) {
    return nullptr;
  }
  auto* frame = reinterpret_cast<_PyInterpreterFrame*>(generator->gi_iframe);
  // The RESUME that follows the yield says which kind it is: 2 in `yield from`, 3 in `await`.
  const _Py_CODEUNIT next = frame->prev_instr[1];
  const bool resumes = _Py_OPCODE(next) == RESUME || _Py_OPCODE(next) == RESUME_QUICK;
  if (!resumes || _Py_OPARG(next) < 2) {
    return nullptr;
  }
  return _PyFrame_StackPeek(frame);
}

PyObject* awaitableIterator(PyObject* object) {
  if (isCoroutine(object)) {
    return Py_NewRef(object);
  }
  PyTypeObject* type = Py_TYPE(object);
  const unaryfunc getter = type->tp_as_async != nullptr ? type->tp_as_async->am_await : nullptr;
  if (getter == nullptr) {
    PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression", type->tp_name);
    return nullptr;
  }
  PyObject* iterator = getter(object);
  if (iterator == nullptr) {
    return nullptr;
  }
  if (isCoroutine(iterator)) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
  } else if (PyIter_Check(iterator) == 0) {
    PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'",
                 Py_TYPE(iterator)->tp_name);
  } else {
    return iterator;
  }
  Py_DECREF(iterator);
  return nullptr;
}

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
