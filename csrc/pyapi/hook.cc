#include "pyapi/hook.h"

#include <utility>

namespace kintsugi::pyapi {

namespace {

EvalFunction ours = nullptr;
EvalFunction below = _PyEval_EvalFrameDefault;
int watches = 0;                       // on all threads
thread_local uint64_t framesSeen = 0;  // while any watch lives

// The frame that was passed to the evaluator below ours. That evaluator may call the one that it found
// installed before itself, which may be ours: an error in torch._dynamo leaves its evaluator installed, and
// when it is used again, it takes ours for the older one. Such a frame goes to CPython's evaluator.
thread_local Frame* passedOn = nullptr;

PyObject* evaluate(PyThreadState* tstate, Frame* frame, int throwing) {
  ++framesSeen;
  if (frame == passedOn) return _PyEval_EvalFrameDefault(tstate, frame, throwing);
  const bool passes = isServiceFrame(frame) || isWatching(tstate) || ours == nullptr;
  return passes ? evalFrameWithNext(tstate, frame, throwing) : ours(tstate, frame, throwing);
}

void install() {
  PyInterpreterState* interp = PyInterpreterState_Main();
  const EvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
  if (current == evaluate) return;  // the hook must not call itself
  below = current;
  _PyInterpreterState_SetEvalFrameFunc(interp, evaluate);
}

void removeUnlessUsed() {
  if (ours != nullptr || watches > 0) return;
  PyInterpreterState* interp = PyInterpreterState_Main();
  if (_PyInterpreterState_GetEvalFrameFunc(interp) != evaluate) return;
  _PyInterpreterState_SetEvalFrameFunc(interp, below);
  below = _PyEval_EvalFrameDefault;
}

}  // namespace

void installEvalHook(EvalFunction function) {
  install();
  ours = function;
}

void removeEvalHook() {
  ours = nullptr;
  removeUnlessUsed();
}

PythonWatch::PythonWatch() : before_(framesSeen) {
  ++watches;
  install();
}

PythonWatch::~PythonWatch() {
  --watches;
  removeUnlessUsed();
}

bool PythonWatch::ran() const {
  return framesSeen != before_ || _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Main()) != evaluate;
}

bool evalHookInstalled() { return ours != nullptr; }

PyObject* evalFrameWithNext(PyThreadState* tstate, Frame* frame, int throwing) {
  if (below == _PyEval_EvalFrameDefault) return below(tstate, frame, throwing);
  Frame* outer = std::exchange(passedOn, frame);
  PyObject* result = below(tstate, frame, throwing);
  passedOn = outer;
  return result;
}

EvalFunction evalFunction() { return _PyInterpreterState_GetEvalFrameFunc(PyThreadState_Get()->interp); }

void setEvalFunction(EvalFunction function) {
  _PyInterpreterState_SetEvalFrameFunc(PyThreadState_Get()->interp, function);
}

}  // namespace kintsugi::pyapi
