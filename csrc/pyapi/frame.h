// Access to CPython's frames and its thread state: what is read and written in place is in the version's own
// frame.h (pyapi/v311/frame.h); what needs more than that is declared here.
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

// The frame object (made if need be) of the thread's *current* frame; borrowed. Null with an exception
// pending when memory runs out.
PyFrameObject* currentFrameObject(PyThreadState* tstate, Frame* frame);

// The line of the instruction at code unit `unit`, or -1.
int lineAt(PyCodeObject* code, int32_t unit);

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
