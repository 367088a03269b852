// Access to CPython's frames and its thread state. pyapi/frame_fields.h has what is the same in all versions.
// The version's own frame.h (pyapi/v311/frame.h) has the rest of the fields. This file has what needs more
// than reading and writing a field.
//
//   Frame* frame = currentFrame(tstate);
//   PyObject* x = localAt(frame, 0);               // borrowed
//   int32_t unit = runningUnit(frame);             // of the instruction that runs
//
// The structs belong to CPython; everything here owns nothing. A frame's stack slots and locals own one
// reference each, as in CPython. A position in code is a *code unit* (two bytes): an opcode, an EXTENDED_ARG
// or an inline cache entry. Threads: the GIL is needed everywhere; a frame is only touched by the thread that
// runs it. Invalidation: a frame dies when the call that it belongs to ends; do not keep pointers to frames
// beyond that.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"
#include "pyapi/version.h"
#include KINTSUGI_VERSION_FRAME

namespace kintsugi::pyapi {

// Hides frames of this code from whoever looks at the stack (sys._getframe, f_back, warnings, tracebacks):
// the code is traceable only from its end on. CPython checks this for frames of functions, but not of
// generators; whoever links frames leaves those out.
inline void hideFramesOf(PyCodeObject* code) {
  code->_co_firsttraceable = codeUnitCount(code) - kTraceableTail;
}
inline bool isHidden(const PyCodeObject* code) {
  return code->_co_firsttraceable >= codeUnitCount(code) - kTraceableTail;
}

// CPython's recursion accounting for a Python or C call. enterRecursion: false with RecursionError pending.
bool recursionLimitHit(PyThreadState* tstate, const char* where);
inline bool enterRecursion(PyThreadState* tstate, const char* where) {
  return recursionRemaining(tstate)-- > 0 || !recursionLimitHit(tstate, where);
}
inline void leaveRecursion(PyThreadState* tstate) { recursionRemaining(tstate)++; }
// The number of calls that may still be nested, and a way to use up some of them at once.
inline int recursionLeft(PyThreadState* tstate) { return recursionRemaining(tstate); }
inline void takeRecursion(PyThreadState* tstate, int levels) { recursionRemaining(tstate) -= levels; }

// Makes the frame the thread's current one during its lifetime, as when CPython's evaluator runs it. (For
// hidden code, the frame before it stays.) Lives on the C stack of the thread.
class FrameLink {
 public:
  FrameLink(PyThreadState* tstate, Frame* frame) : tstate_(tstate) {
    linkEvaluation(tstate, state_);
    markEntry(frame);
    Frame*& current = currentSlot(tstate, state_);
    frame->previous = current;
    if (!isHidden(codeOf(frame))) current = frame;
  }
  ~FrameLink() { unlinkEvaluation(tstate_, state_); }
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  bool tracing() const { return isTracing(tstate_, state_); }

 private:
  PyThreadState* tstate_;
  EvaluationState state_;
};

// For a frame that is over while somebody keeps its frame object. As in CPython, the object gets a copy of
// the frame, which takes over its references and a new reference to the code. The caller's frame is the
// current one by now.
void keepFrameObject(PyFrameObject* object, Frame* frame);

// The frame object (made if need be) of the thread's *current* frame; borrowed. Null with an exception
// pending when memory runs out.
PyFrameObject* currentFrameObject(PyThreadState* tstate, Frame* frame);

// The line of the instruction at code unit `unit`, or -1.
int lineAt(PyCodeObject* code, int32_t unit);
// The number of the opcode at this unit, as the running CPython numbers it.
int opcodeNumberAt(PyCodeObject* code, int32_t unit);

// The place where an exception goes that the instruction at `unit` raises.
struct Handler {
  int32_t target = -1;     // code unit of the handler; -1: none, the frame is left
  int32_t depth = 0;       // cut the value stack to this depth first
  bool pushLasti = false;  // then push the offset of the raising instruction
};
Handler findHandler(const PyCodeObject* code, int32_t unit);

// Serves all of these requests. False: an exception is pending.
bool handleEvalBreaker(PyThreadState* tstate);

}  // namespace kintsugi::pyapi
