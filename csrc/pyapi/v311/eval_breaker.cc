// Serves signals and other requests between instructions, and checks the recursion limit, in CPython 3.11.
#include "pyapi/frame.h"
#include "pyapi/gil.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

namespace {

// Computes the flag that makes evaluators stop, as CPython does. Its own functions are not exported.
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

bool handleEvalBreaker(PyThreadState* tstate) {
  PyInterpreterState* interp = tstate->interp;
  _ceval_state& state = interp->ceval;
  const bool signals = _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) != 0;
  const bool calls = _Py_atomic_load_relaxed(&state.pending.calls_to_do) != 0;
  // Serves both kinds, on the thread that may do so. The call also resets the requests, and sets them again
  // if a handler raises.
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

uint64_t gilSwitches(const PyThreadState*) { return _PyRuntime.ceval.gil.switch_number; }

bool mustServe(const PyThreadState* tstate) {
  PyInterpreterState* interp = tstate->interp;
  const bool signals = _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) != 0;
  const bool calls = _Py_atomic_load_relaxed(&interp->ceval.pending.calls_to_do) != 0;
  return (signals && _Py_ThreadCanHandleSignals(interp) != 0) ||
         (calls && _Py_ThreadCanHandlePendingCalls() != 0) || tstate->async_exc != nullptr;
}

bool recursionLimitHit(PyThreadState* tstate, const char* where) {
  return _Py_CheckRecursiveCall(tstate, where) != 0;
}

}  // namespace kintsugi::pyapi
