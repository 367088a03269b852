// The PEP 523 frame evaluator of the interpreter: install ours, chain to the one that was there, restore it.
//
// The evaluator is one pointer per CPython interpreter, shared with other users (torch._dynamo sets and
// resets it while its own functions run), so it can change under us: removing restores the previous one only
// when ours is still the current one. Ours stays correct when it is called by somebody who saved it: it must
// be able to pass any frame on. Threads: the GIL is needed. Process-wide state (of the main interpreter).
#pragma once

#include <cstdint>

#include "pyapi/frame.h"

namespace kintsugi::pyapi {

// Makes `function` the evaluator of every frame and remembers the one before. Installing the installed one
// again only re-asserts it. Only one function of ours can be installed at a time.
void installEvalHook(EvalFunction function);

// Puts the previous evaluator back, unless somebody else has replaced ours in the meantime.
void removeEvalHook();

bool evalHookInstalled();

// Notes whether this thread evaluates a Python frame while it lives: C code that is said to run none may do
// so after all, for an object of another class than it was given before. Example:
//
//   const PythonWatch watch;
//   ...  // call the C function
//   if (watch.ran()) lookAgain();
class PythonWatch {
 public:
  PythonWatch();
  ~PythonWatch();
  PythonWatch(const PythonWatch&) = delete;
  bool ran() const;  // true too where somebody else's evaluator is installed, which sees the frames first

 private:
  uint64_t before_;
};

// Evaluates a frame with the evaluator below ours (CPython's own, mostly): how a hook passes a frame on. A
// new reference, or null with an exception pending.
PyObject* evalFrameWithNext(PyThreadState* tstate, Frame* frame, int throwing);

// The evaluator of this thread's interpreter, whoever's it is. For the length of one call, see
// runtime/frame_rebuild.cc.
EvalFunction evalFunction();
void setEvalFunction(EvalFunction function);

}  // namespace kintsugi::pyapi
