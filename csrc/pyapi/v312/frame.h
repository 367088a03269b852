// CPython 3.12's frames: `_PyInterpreterFrame`, the chain that a thread keeps of them, and the counters
// beside it. What each function means is the same in each version; pyapi/frame.h is what others include.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include <cstdint>

#include "pyapi/code.h"
#include "pyapi/internal.h"

namespace kintsugi::pyapi {

using Frame = _PyInterpreterFrame;
// Who evaluates frames (PEP 523): (thread, frame, is an exception thrown into it?) to a result.
using EvalFunction = _PyFrameEvalFunction;
// CPython's own evaluator.
inline PyObject* evaluateFrame(PyThreadState* tstate, Frame* frame, bool throwing) {
  return _PyEval_EvalFrameDefault(tstate, frame, throwing ? 1 : 0);
}

inline PyCodeObject* codeOf(const Frame* frame) { return frame->f_code; }
inline PyFunctionObject* functionOf(const Frame* frame) {
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
}
inline PyObject* globalsOf(const Frame* frame) { return frame->f_globals; }
inline PyObject* builtinsOf(const Frame* frame) { return frame->f_builtins; }
// The namespace of a class body or module; null in functions (until somebody asked for locals()).
inline PyObject* localsDictOf(const Frame* frame) { return frame->f_locals; }
// Each run of CPython's evaluator puts a frame of its own on the chain, which has no code, globals or
// variables.
inline Frame* pastEntry(Frame* frame) {
  while (frame != nullptr && frame->owner == FRAME_OWNED_BY_CSTACK) frame = frame->previous;
  return frame;
}
inline Frame* previousOf(const Frame* frame) { return pastEntry(frame->previous); }
inline Frame* currentFrame(PyThreadState* tstate) { return pastEntry(tstate->cframe->current_frame); }

// Locals, then cells, then free variables; the value stack follows.
inline PyObject** localsPlus(Frame* frame) { return frame->localsplus; }
inline PyObject** stackBase(Frame* frame) { return frame->localsplus + frame->f_code->co_nlocalsplus; }

// The saved stack pointer; only meaningful while the frame does not run (CPython keeps it in a register
// otherwise).
inline PyObject** stackPointer(Frame* frame) { return frame->localsplus + frame->stacktop; }
inline void setStackPointer(Frame* frame, PyObject** sp) {
  frame->stacktop = static_cast<int>(sp - frame->localsplus);
}
// Hides the value stack from the cycle collector while it changes, until setStackPointer().
inline void hideStack(Frame* frame) { frame->stacktop = -1; }
inline int stackDepth(Frame* frame) { return frame->stacktop - frame->f_code->co_nlocalsplus; }
inline void setStackDepth(Frame* frame, int depth) {
  frame->stacktop = frame->f_code->co_nlocalsplus + depth;
}

// `prev_instr` as an index: the code unit *before* the next one to run; -1 in a new frame. While an
// instruction runs it is the index of that instruction.
inline int32_t prevInstrIndex(const Frame* frame) {
  return static_cast<int32_t>(frame->prev_instr - codeUnits(frame->f_code));
}
inline void setPrevInstrIndex(Frame* frame, int32_t unit) {
  frame->prev_instr = codeUnits(frame->f_code) + unit;
}
// The same, for the evaluation loop, which has the code's units at hand.
inline void setPrevInstr(Frame* frame, CodeUnit* units, int32_t unit) { frame->prev_instr = units + unit; }
// Makes `unit` the next code unit that runs when the frame is evaluated (or resumed).
inline void setResumeUnit(Frame* frame, int32_t unit) { setPrevInstrIndex(frame, unit - 1); }

inline bool ownedByGenerator(const Frame* frame) { return frame->owner == FRAME_OWNED_BY_GENERATOR; }
// The generator, coroutine or async generator that holds the frame. Only when ownedByGenerator().
inline PyGenObject* generatorOf(Frame* frame) { return _PyFrame_GetGenerator(frame); }
// Before the first RESUME (cells and the generator object are not made yet) or of hidden code: nobody sees
// the frame.
inline bool isIncomplete(Frame* frame) { return _PyFrame_IsIncomplete(frame); }

// Frames of hidden code are not there for whoever looks at the stack (sys._getframe, f_back, warnings,
// tracebacks): the code's first traceable instruction is its last one, which calls nothing. (Were there none,
// RESUME would wait for ever for the code to be instrumented.) CPython looks at that in frames of functions,
// but not in those of generators, which whoever links frames leaves out.
inline void hideFramesOf(PyCodeObject* code) { code->_co_firsttraceable = codeUnitCount(code) - 1; }
inline bool isHidden(const PyCodeObject* code) { return code->_co_firsttraceable >= codeUnitCount(code) - 1; }
// The frame that is the current one while `frame` runs.
inline Frame* visibleFrame(PyThreadState* tstate, Frame* frame) {
  return isHidden(frame->f_code) ? tstate->cframe->current_frame : frame;
}

// Somebody holds the frame's object, and may read the variables when the call is over.
inline bool isSeen(const Frame* frame) {
  return frame->frame_obj != nullptr && Py_REFCNT(frame->frame_obj) > 1;
}

// Whoever evaluates a frame calls this at the end, when the frame is no longer the current one: it leaves the
// generator's handled exception, and clears and frees a frame that is over.
enum class FrameEnd : uint8_t { kSuspended, kOver };
void finishFrame(PyThreadState* tstate, Frame* frame, FrameEnd how);

// An exception is pending on the running thread.
inline bool isRaising(const PyThreadState* tstate) { return tstate->current_exception != nullptr; }

// A frame of code that is there to have CPython's evaluator do something: only that may run it.
bool isServiceFrame(const Frame* frame);

// The event that the thread's tracing function is told of.
inline int& tracedEvent(PyThreadState* tstate) { return tstate->what_event; }

// A function of sys.settrace() or sys.setprofile() is active on this thread, or a tool of sys.monitoring is
// in use: tools see all threads, and single code objects may report to them. None of it while such a function
// runs.
inline bool isTracing(const PyThreadState* tstate) {
  if (tstate->tracing != 0) return false;
  bool found = tstate->c_tracefunc != nullptr || tstate->c_profilefunc != nullptr;
  for (int tool = 0; tool < PY_MONITORING_SYS_PROFILE_ID; ++tool) {
    found = found || tstate->interp->monitoring_tool_names[tool] != nullptr;
  }
  return found;
}

// Something asks the running thread for attention: a signal, a pending call, an asynchronous exception or
// another thread that wants the GIL.
inline bool evalBreakerSet(const PyThreadState* tstate) {
  return __atomic_load_n(reinterpret_cast<const int*>(&tstate->interp->ceval.eval_breaker),
                         __ATOMIC_RELAXED) != 0;
}
// CPython's recursion accounting for a Python or C call. enterRecursion: false with RecursionError pending.
bool recursionLimitHit(PyThreadState* tstate, const char* where);
inline bool enterRecursion(PyThreadState* tstate, const char* where) {
  return tstate->py_recursion_remaining-- > 0 || !recursionLimitHit(tstate, where);
}
inline void leaveRecursion(PyThreadState* tstate) { tstate->py_recursion_remaining++; }
// How many calls may still be nested, and taking some of them at once.
inline int recursionLeft(const PyThreadState* tstate) { return tstate->py_recursion_remaining; }
inline void takeRecursion(PyThreadState* tstate, int levels) { tstate->py_recursion_remaining -= levels; }

// Where the evaluator keeps the current frame of a thread, on the C stack: one for each nested evaluation.
using EvaluationState = _PyCFrame;

// The frame is the thread's current one while this lives, as when CPython's evaluator runs it. Lives on the C
// stack of the thread.
class FrameLink {
 public:
  FrameLink(PyThreadState* tstate, Frame* frame) : tstate_(tstate) {
    state_.previous = tstate->cframe;
    frame->previous = tstate->cframe->current_frame;
    state_.current_frame = visibleFrame(tstate, frame);
    tstate->cframe = &state_;
  }
  ~FrameLink() { tstate_->cframe = state_.previous; }
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  bool tracing() const { return isTracing(tstate_); }

 private:
  PyThreadState* tstate_;
  EvaluationState state_;
};

}  // namespace kintsugi::pyapi
