#include "pyapi/hook.h"

namespace kintsugi::pyapi {

namespace {

EvalFunction ours = nullptr;
EvalFunction below = _PyEval_EvalFrameDefault;

PyObject* evaluate(PyThreadState* tstate, Frame* frame, int throwing) {
  return isServiceFrame(frame) || ours == nullptr ? below(tstate, frame, throwing)
                                                  : ours(tstate, frame, throwing);
}

}  // namespace

void installEvalHook(EvalFunction function) {
  PyInterpreterState* interp = PyInterpreterState_Main();
  const EvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
  if (current != evaluate) {  // chaining to ourselves would never end
    below = current;
    _PyInterpreterState_SetEvalFrameFunc(interp, evaluate);
  }
  ours = function;
}

void removeEvalHook() {
  PyInterpreterState* interp = PyInterpreterState_Main();
  if (ours != nullptr && _PyInterpreterState_GetEvalFrameFunc(interp) == evaluate) {
    _PyInterpreterState_SetEvalFrameFunc(interp, below);
    below = _PyEval_EvalFrameDefault;
  }
  ours = nullptr;
}

bool evalHookInstalled() { return ours != nullptr; }

PyObject* evalFrameBelow(PyThreadState* tstate, Frame* frame, int throwing) {
  return below(tstate, frame, throwing);
}

EvalFunction evalFunction() { return _PyInterpreterState_GetEvalFrameFunc(PyThreadState_Get()->interp); }

void setEvalFunction(EvalFunction function) {
  _PyInterpreterState_SetEvalFrameFunc(PyThreadState_Get()->interp, function);
}

}  // namespace kintsugi::pyapi
