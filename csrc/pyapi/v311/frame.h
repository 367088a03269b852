// Parts of frames that are particular to CPython 3.11: who clears them, what is hidden, the thread's chain of
// frames, and counters. Each function means the same in all versions; others include pyapi/frame.h.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include "pyapi/until312/frame.h"

namespace kintsugi::pyapi {

inline PyFunctionObject* functionOf(const Frame* frame) { return frame->f_func; }
inline void setFunction(Frame* frame, PyFunctionObject* function) { frame->f_func = function; }
// The code of a generator, also if its frame is over.
inline PyCodeObject* codeOf(const PyGenObject* generator) { return generator->gi_code; }

inline Frame* previousOf(const Frame* frame) { return frame->previous; }
inline Frame* currentFrame(PyThreadState* tstate) { return tstate->cframe->current_frame; }

// The distance in units from the end of hidden code to its first traceable instruction: there is none.
inline constexpr int32_t kTraceableTail = 0;

// Called at the end of an evaluation. In CPython 3.11 its caller does all that is needed.
enum class FrameEnd : uint8_t { kSuspended, kOver };
inline void finishFrame(PyThreadState*, Frame*, FrameEnd) {}

// An exception is pending on the running thread.
inline bool isRaising(const PyThreadState* tstate) { return tstate->curexc_type != nullptr; }

// True for a frame of a service function (v312/service.h), which only CPython's evaluator may run. 3.11 needs
// none.
inline bool isServiceFrame(const Frame*) { return false; }

// The event that the thread's tracing function is notified of.
inline int& tracedEvent(PyThreadState* tstate) { return tstate->tracing_what; }

// How many calls of Python code may still be nested.
inline int& recursionRemaining(PyThreadState* tstate) { return tstate->recursion_remaining; }

// A sys.settrace() or sys.setprofile() function is active on this thread.
inline bool isTracing(const PyThreadState* tstate) { return tstate->cframe->use_tracing != 0; }

// Called where an evaluation begins and ends. Passes on whether a tracing function is active.
inline void linkEvaluation(PyThreadState* tstate, EvaluationState& state) {
  state = {.use_tracing = tstate->cframe->use_tracing,
           .current_frame = tstate->cframe->current_frame,
           .previous = tstate->cframe};
  tstate->cframe = &state;
}
inline void unlinkEvaluation(PyThreadState* tstate, EvaluationState& state) {
  tstate->cframe = state.previous;
  state.previous->use_tracing = state.use_tracing;
}
inline bool isTracing(const PyThreadState*, const EvaluationState& state) { return state.use_tracing != 0; }
// The frame is the first one of an evaluation.
inline void markEntry(Frame* frame) { frame->is_entry = true; }

}  // namespace kintsugi::pyapi

#include "pyapi/until313/slots.h"
