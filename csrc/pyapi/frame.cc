#include "pyapi/frame.h"

#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

namespace {

// CPython's own arithmetic of the flag that makes evaluators stop; its functions are not exported.
void recomputeEvalBreaker(PyInterpreterState* interp) {
  _ceval_runtime_state& runtime = _PyRuntime.ceval;
  _ceval_state& state = interp->ceval;
  const bool signals =
      _Py_atomic_load_relaxed(&runtime.signals_pending) != 0 && _Py_ThreadCanHandleSignals(interp) != 0;
  const bool calls =
      _Py_atomic_load_relaxed(&state.pending.calls_to_do) != 0 && _Py_ThreadCanHandlePendingCalls() != 0;
  const bool drop = _Py_atomic_load_relaxed(&state.gil_drop_request) != 0;
  _Py_atomic_store_relaxed(&state.eval_breaker, drop || signals || calls || state.pending.async_exc != 0);
}

}  // namespace

PyFrameObject* currentFrameObject(PyThreadState* tstate, Frame* frame) {
  if (frame->frame_obj != nullptr) {
    return frame->frame_obj;
  }
  // The function that makes frame objects is not exported; this one calls it for the current frame.
  return currentFrame(tstate) == frame ? PyEval_GetFrame() : nullptr;
}

int lineAt(PyCodeObject* code, int32_t unit) {
  return PyCode_Addr2Line(code, unit * static_cast<int>(sizeof(_Py_CODEUNIT)));
}

bool handleEvalBreaker(PyThreadState* tstate) {
  PyInterpreterState* interp = tstate->interp;
  _ceval_state& state = interp->ceval;
  const bool signals = _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) != 0;
  const bool calls = _Py_atomic_load_relaxed(&state.pending.calls_to_do) != 0;
  // Does both, on the thread that may: it also resets the requests and, when a handler raises, sets them
  // again.
  if ((signals || calls) && Py_MakePendingCalls() != 0) {
    return false;
  }
  if (_Py_atomic_load_relaxed(&state.gil_drop_request) != 0) {
    PyEval_RestoreThread(PyEval_SaveThread());
  }
  if (tstate->async_exc != nullptr) {
    auto exception = steal(tstate->async_exc);
    tstate->async_exc = nullptr;
    state.pending.async_exc = 0;
    recomputeEvalBreaker(interp);
    PyErr_SetNone(exception.get());
    return false;
  }
  return true;
}

bool recursionLimitHit(PyThreadState* tstate, const char* where) {
  return _Py_CheckRecursiveCall(tstate, where) != 0;
}

void raiseForName(PyObject* exception, const char* format, PyObject* name) {
  const char* text = name == nullptr ? nullptr : PyUnicode_AsUTF8(name);
  if (text == nullptr) {
    return;
  }
  PyErr_Format(exception, format, text);
  if (exception != PyExc_NameError) {
    return;
  }
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (PyErr_GivenExceptionMatches(value, PyExc_NameError) != 0 &&
      reinterpret_cast<PyNameErrorObject*>(value)->name == nullptr &&
      PyObject_SetAttr(value, &_Py_ID(name), name) < 0) {
    PyErr_Clear();  // the name only serves suggestions
  }
  PyErr_Restore(type, value, traceback);
}

void raiseUnbound(PyCodeObject* code, uint32_t index) {
  if (PyErr_Occurred() != nullptr) {
    return;
  }
  PyObject* name = variableName(code, index);
  if (isFreeVariable(code, index)) {
    raiseForName(
        PyExc_NameError,
        "cannot access free variable '%s' where it is not associated with a value in enclosing scope", name);
  } else {
    raiseForName(PyExc_UnboundLocalError,
                 "cannot access local variable '%s' where it is not associated with a value", name);
  }
}

void restoreRaised(PyObject* value) {
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(value)), Py_NewRef(value),
                PyException_GetTraceback(value));
}

PyObject* takeRaised() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_XDECREF(type);
  return value;
}

}  // namespace kintsugi::pyapi
