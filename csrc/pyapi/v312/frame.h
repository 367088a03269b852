// CPython 3.12's frames, where they differ: who clears them, what is hidden, the chain that a thread keeps of
// them, and the counters beside it. What each function means is the same in each version; pyapi/frame.h is
// what others include.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include "pyapi/frame_fields.h"

namespace kintsugi::pyapi {

inline PyFunctionObject* functionOf(const Frame* frame) {
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
}
inline void setFunction(Frame* frame, PyFunctionObject* function) {
  frame->f_funcobj = reinterpret_cast<PyObject*>(function);
}
// Of a generator, also when its frame is over.
inline PyCodeObject* codeOf(const PyGenObject* generator) {
  return reinterpret_cast<const Frame*>(generator->gi_iframe)->f_code;
}

// Each run of CPython's evaluator puts a frame of its own on the chain, which has no code, globals or
// variables.
inline Frame* pastEntry(Frame* frame) {
  while (frame != nullptr && frame->owner == FRAME_OWNED_BY_CSTACK) frame = frame->previous;
  return frame;
}
inline Frame* previousOf(const Frame* frame) { return pastEntry(frame->previous); }
inline Frame* currentFrame(PyThreadState* tstate) { return pastEntry(tstate->cframe->current_frame); }

// How many units before the end of hidden code its first traceable instruction lies: it is the last one,
// which calls nothing. (Were there none, RESUME would wait for ever for the code to be instrumented.)
inline constexpr int32_t kTraceableTail = 1;

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

// How many calls of Python code may still be nested.
inline int& recursionRemaining(PyThreadState* tstate) { return tstate->py_recursion_remaining; }

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

// An evaluation begins and ends.
inline void linkEvaluation(PyThreadState* tstate, EvaluationState& state) {
  state = {.current_frame = tstate->cframe->current_frame, .previous = tstate->cframe};
  tstate->cframe = &state;
}
inline void unlinkEvaluation(PyThreadState* tstate, EvaluationState& state) {
  tstate->cframe = state.previous;
}
inline bool isTracing(const PyThreadState* tstate, const EvaluationState&) { return isTracing(tstate); }
// The frame is the first one of an evaluation.
inline void markEntry(Frame* frame) { frame->return_offset = 0; }

}  // namespace kintsugi::pyapi
