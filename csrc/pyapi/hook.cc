#include "pyapi/hook.h"

namespace kintsugi::pyapi {

namespace {

_PyFrameEvalFunction ours = nullptr;
_PyFrameEvalFunction below = _PyEval_EvalFrameDefault;

}  // namespace

void installEvalHook(_PyFrameEvalFunction function) {
  PyInterpreterState* interp = PyInterpreterState_Main();
  const _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
  if (current != function) {
    // Chaining to ourselves would never end; it happens when our previous hook is replaced by another of
    // ours.
    if (current != ours) {
      below = current;
    }
    _PyInterpreterState_SetEvalFrameFunc(interp, function);
  }
  ours = function;
}

void removeEvalHook() {
  PyInterpreterState* interp = PyInterpreterState_Main();
  if (ours != nullptr && _PyInterpreterState_GetEvalFrameFunc(interp) == ours) {
    _PyInterpreterState_SetEvalFrameFunc(interp, below);
    below = _PyEval_EvalFrameDefault;
  }
  ours = nullptr;
}

bool evalHookInstalled() { return ours != nullptr; }

PyObject* evalFrameBelow(PyThreadState* tstate, _PyInterpreterFrame* frame, int throwing) {
  return below(tstate, frame, throwing);
}

}  // namespace kintsugi::pyapi
