// Access to CPython's `_PyInterpreterFrame` and thread state, for the supported Python version only.
//
// The structs belong to CPython; everything here reads or writes them in place and owns nothing. A frame's
// stack slots and locals own one reference each, as in CPython. A position in code is a *code unit* (two
// bytes): an opcode, an EXTENDED_ARG or an inline cache entry. Threads: the GIL is needed everywhere; a frame
// is only touched by the thread that runs it. Invalidation: a frame dies when the call that it belongs to
// ends; do not keep pointers to frames beyond that.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

inline PyCodeObject* codeOf(const _PyInterpreterFrame* frame) { return frame->f_code; }
inline PyFunctionObject* functionOf(const _PyInterpreterFrame* frame) { return frame->f_func; }
inline PyObject* globalsOf(const _PyInterpreterFrame* frame) { return frame->f_globals; }
inline PyObject* builtinsOf(const _PyInterpreterFrame* frame) { return frame->f_builtins; }
// The namespace of a class body or module; null in functions (until somebody asked for locals()).
inline PyObject* localsDictOf(const _PyInterpreterFrame* frame) { return frame->f_locals; }
inline _PyInterpreterFrame* previousOf(const _PyInterpreterFrame* frame) { return frame->previous; }
inline _PyInterpreterFrame* currentFrame(PyThreadState* tstate) { return tstate->cframe->current_frame; }

// Locals, then cells, then free variables; the value stack follows.
inline PyObject** localsPlus(_PyInterpreterFrame* frame) { return frame->localsplus; }
inline int localsPlusCount(const PyCodeObject* code) { return code->co_nlocalsplus; }
inline int stackCapacity(const PyCodeObject* code) { return code->co_stacksize; }
inline PyObject** stackBase(_PyInterpreterFrame* frame) {
  return frame->localsplus + frame->f_code->co_nlocalsplus;
}

// The saved stack pointer; only meaningful while the frame does not run (CPython keeps it in a register
// otherwise).
inline PyObject** stackPointer(_PyInterpreterFrame* frame) { return frame->localsplus + frame->stacktop; }
inline void setStackPointer(_PyInterpreterFrame* frame, PyObject** sp) {
  frame->stacktop = static_cast<int>(sp - frame->localsplus);
}
inline int stackDepth(_PyInterpreterFrame* frame) { return frame->stacktop - frame->f_code->co_nlocalsplus; }
inline void setStackDepth(_PyInterpreterFrame* frame, int depth) {
  frame->stacktop = frame->f_code->co_nlocalsplus + depth;
}

// `prev_instr` as an index: the code unit *before* the next one to run; -1 in a new frame. While an
// instruction runs it is the index of that instruction.
inline _Py_CODEUNIT* codeUnits(const PyCodeObject* code) {
  return _PyCode_CODE(const_cast<PyCodeObject*>(code));
}
inline int32_t codeUnitCount(const PyCodeObject* code) { return static_cast<int32_t>(Py_SIZE(code)); }
inline int32_t prevInstrIndex(const _PyInterpreterFrame* frame) {
  return static_cast<int32_t>(frame->prev_instr - codeUnits(frame->f_code));
}
inline void setPrevInstrIndex(_PyInterpreterFrame* frame, int32_t unit) {
  frame->prev_instr = codeUnits(frame->f_code) + unit;
}
// Makes `unit` the next code unit that runs when the frame is evaluated (or resumed).
inline void setResumeUnit(_PyInterpreterFrame* frame, int32_t unit) { setPrevInstrIndex(frame, unit - 1); }

inline bool ownedByGenerator(const _PyInterpreterFrame* frame) {
  return frame->owner == FRAME_OWNED_BY_GENERATOR;
}
// The generator, coroutine or async generator that holds the frame. Only when ownedByGenerator().
inline PyGenObject* generatorOf(_PyInterpreterFrame* frame) { return _PyFrame_GetGenerator(frame); }
inline bool isGeneratorCode(const PyCodeObject* code) {
  return (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
}
// Before the first RESUME (cells and the generator object are not made yet) or of hidden code: nobody sees
// the frame.
inline bool isIncomplete(_PyInterpreterFrame* frame) { return _PyFrame_IsIncomplete(frame); }

// Frames of hidden code are not there for whoever looks at the stack (sys._getframe, f_back, warnings,
// tracebacks): the code has no first traceable instruction. CPython looks at that in frames of functions, but
// not in those of generators, which whoever links frames leaves out.
inline void hideFramesOf(PyCodeObject* code) { code->_co_firsttraceable = codeUnitCount(code); }
inline bool isHidden(const PyCodeObject* code) { return code->_co_firsttraceable >= codeUnitCount(code); }
// The frame that is the current one while `frame` runs.
inline _PyInterpreterFrame* visibleFrame(PyThreadState* tstate, _PyInterpreterFrame* frame) {
  return isHidden(frame->f_code) ? tstate->cframe->current_frame : frame;
}

// The frame object (made if need be) of the thread's *current* frame; borrowed. Null with an exception
// pending when memory runs out.
PyFrameObject* currentFrameObject(PyThreadState* tstate, _PyInterpreterFrame* frame);

// The line of the instruction at code unit `unit`, or -1.
int lineAt(PyCodeObject* code, int32_t unit);

// Where an exception raised by the instruction at `unit` goes.
struct Handler {
  int32_t target = -1;     // code unit of the handler; -1: none, the frame is left
  int32_t depth = 0;       // cut the value stack to this depth first
  bool pushLasti = false;  // then push the offset of the raising instruction
};
Handler findHandler(const PyCodeObject* code, int32_t unit);

// A sys.settrace() or sys.setprofile() function is active on this thread.
inline bool isTracing(const PyThreadState* tstate) { return tstate->cframe->use_tracing != 0; }

// Something asks the running thread for attention: a signal, a pending call, an asynchronous exception or
// another thread that wants the GIL.
inline bool evalBreakerSet(const PyThreadState* tstate) {
  return __atomic_load_n(reinterpret_cast<const int*>(&tstate->interp->ceval.eval_breaker),
                         __ATOMIC_RELAXED) != 0;
}
// Serves all of these. False: an exception is pending.
bool handleEvalBreaker(PyThreadState* tstate);

// CPython's recursion accounting for a Python or C call. enterRecursion: false with RecursionError pending.
bool recursionLimitHit(PyThreadState* tstate, const char* where);
inline bool enterRecursion(PyThreadState* tstate, const char* where) {
  return tstate->recursion_remaining-- > 0 || !recursionLimitHit(tstate, where);
}
inline void leaveRecursion(PyThreadState* tstate) { tstate->recursion_remaining++; }

}  // namespace kintsugi::pyapi
