#include "pyapi/tracing.h"

#include "pyapi/frame.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

namespace {

struct Pending {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
};

int callTracer(Py_tracefunc function, PyObject* object, PyThreadState* tstate, _PyInterpreterFrame* frame,
               int event, PyObject* argument) {
  PyFrameObject* frameObject = tstate->tracing != 0 ? nullptr : currentFrameObject(tstate, frame);
  if (frameObject == nullptr) {
    return 0;
  }
  const int outerEvent = tracedEvent(tstate);
  tracedEvent(tstate) = event;
  PyThreadState_EnterTracing(tstate);
  frameObject->f_lineno = lineAt(codeOf(frame), runningUnit(frame));
  const int error = function(object, frameObject, event, argument);
  frameObject->f_lineno = 0;
  PyThreadState_LeaveTracing(tstate);
  tracedEvent(tstate) = outerEvent;
  return error;
}

// Restores the exception that was set aside, unless the tracing function has raised another.
void restoreUnless(int error, const Pending& pending) {
  if (error == 0) {
    PyErr_Restore(pending.type, pending.value, pending.traceback);
    return;
  }
  Py_XDECREF(pending.type);
  Py_XDECREF(pending.value);
  Py_XDECREF(pending.traceback);
}

}  // namespace

void traceException(PyThreadState* tstate, _PyInterpreterFrame* frame) {
  if (tstate->c_tracefunc == nullptr) {
    return;
  }
  Pending pending;
  PyErr_Fetch(&pending.type, &pending.value, &pending.traceback);
  PyErr_NormalizeException(&pending.type, &pending.value, &pending.traceback);
  PyObject* traceback = pending.traceback != nullptr ? pending.traceback : Py_None;
  auto argument = steal(PyTuple_Pack(3, pending.type, pending.value, traceback));
  if (!argument) {
    PyErr_Restore(pending.type, pending.value, pending.traceback);
    return;
  }
  restoreUnless(
      callTracer(tstate->c_tracefunc, tstate->c_traceobj, tstate, frame, PyTrace_EXCEPTION, argument.get()),
      pending);
}

void traceUnwind(PyThreadState* tstate, _PyInterpreterFrame* frame) {
  Pending pending;
  PyErr_Fetch(&pending.type, &pending.value, &pending.traceback);
  int error = 0;
  if (tstate->c_tracefunc != nullptr) {
    error = callTracer(tstate->c_tracefunc, tstate->c_traceobj, tstate, frame, PyTrace_RETURN, nullptr);
  }
  if (error == 0 && tstate->c_profilefunc != nullptr) {
    error = callTracer(tstate->c_profilefunc, tstate->c_profileobj, tstate, frame, PyTrace_RETURN, nullptr);
  }
  restoreUnless(error, pending);
}

}  // namespace kintsugi::pyapi
