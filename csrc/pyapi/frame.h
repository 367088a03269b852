// Access to CPython's frames and its thread state: pyapi/frame_fields.h has what is read and written in place
// alike in all versions, the version's own frame.h (pyapi/v311/frame.h) what is not; what needs more than
// that is here.
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

// Frames of hidden code are not there for whoever looks at the stack (sys._getframe, f_back, warnings,
// tracebacks): the code is traceable from its end on. CPython looks at that in frames of functions, but not
// in those of generators, which whoever links frames leaves out.
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
// How many calls may still be nested, and taking some of them at once.
inline int recursionLeft(PyThreadState* tstate) { return recursionRemaining(tstate); }
inline void takeRecursion(PyThreadState* tstate, int levels) { recursionRemaining(tstate) -= levels; }

// The frame is the thread's current one while this lives, as when CPython's evaluator runs it (one of hidden
// code leaves the one before it there). Lives on the C stack of the thread.
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

// A frame that is over and whose object somebody keeps: as CPython does then, the object gets a copy of its
// own, which takes over what the frame holds and gets a reference to the code. The frame below it is the
// current one by now.
void keepFrameObject(PyFrameObject* object, Frame* frame);

// The frame object (made if need be) of the thread's *current* frame; borrowed. Null with an exception
// pending when memory runs out.
PyFrameObject* currentFrameObject(PyThreadState* tstate, Frame* frame);

// The line of the instruction at code unit `unit`, or -1.
int lineAt(PyCodeObject* code, int32_t unit);
// The number of the opcode there, as the running CPython numbers it.
int opcodeNumberAt(PyCodeObject* code, int32_t unit);

// Where an exception raised by the instruction at `unit` goes.
struct Handler {
  int32_t target = -1;     // code unit of the handler; -1: none, the frame is left
  int32_t depth = 0;       // cut the value stack to this depth first
  bool pushLasti = false;  // then push the offset of the raising instruction
};
Handler findHandler(const PyCodeObject* code, int32_t unit);

// Serves all of these. False: an exception is pending.
bool handleEvalBreaker(PyThreadState* tstate);

}  // namespace kintsugi::pyapi
