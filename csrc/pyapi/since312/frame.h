// Parts of frames and the thread's state that are the same since CPython 3.12. The version's own frame.h has
// the rest.
//
// Ownership, threads and invalidation: see pyapi/frame.h, which is what others include.
#pragma once

#include "pyapi/frame_fields.h"

namespace kintsugi::pyapi {

inline PyFunctionObject* functionOf(const Frame* frame) {
  return reinterpret_cast<PyFunctionObject*>(objectIn(frame->f_funcobj));
}
inline void setFunction(Frame* frame, PyFunctionObject* function) {
  fillSlot(frame->f_funcobj, reinterpret_cast<PyObject*>(function));
}
// The code of a generator, also if its frame is over.
inline PyCodeObject* codeOf(const PyGenObject* generator) {
  return codeOf(reinterpret_cast<const Frame*>(&generator->gi_iframe));
}

// Frames that CPython's evaluator puts on the chain for itself, without globals or variables. Each of its
// runs has one, with nothing in it. From 3.13 on one more waits for the `__init__` of a class that is called;
// it looks like a function's, but has None in the function's place.
inline bool isEvaluators(const Frame* frame) {
  return frame->owner > FRAME_OWNED_BY_FRAME_OBJECT || objectIn(frame->f_funcobj) == Py_None;
}
inline Frame* pastEntry(Frame* frame) {
  while (frame != nullptr && isEvaluators(frame)) frame = frame->previous;
  return frame;
}
inline Frame* previousOf(const Frame* frame) { return pastEntry(frame->previous); }

// The distance in units from the end of hidden code to its first traceable instruction. It is the last
// instruction, which calls nothing. (If there were none, RESUME would wait for ever for the code to be
// instrumented.)
inline constexpr int32_t kTraceableTail = 1;

// Called at the end of an evaluation, when the frame is no longer the current one. Leaves the generator's
// handled exception, and clears and frees a frame that is over.
enum class FrameEnd : uint8_t { kSuspended, kOver };
void finishFrame(PyThreadState* tstate, Frame* frame, FrameEnd how);

// An exception is pending on the running thread.
inline bool isRaising(const PyThreadState* tstate) { return tstate->current_exception != nullptr; }

// The event that the thread's tracing function is notified of.
inline int& tracedEvent(PyThreadState* tstate) { return tstate->what_event; }

// How many calls of Python code may still be nested.
inline int& recursionRemaining(PyThreadState* tstate) { return tstate->py_recursion_remaining; }

// True if a function of sys.settrace() or sys.setprofile() is active on this thread, or if a tool of
// sys.monitoring is in use. (Tools see all threads, and single code objects may report to them.) False while
// such a function runs.
inline bool isTracing(const PyThreadState* tstate) {
  if (tstate->tracing != 0) return false;
  bool found = tstate->c_tracefunc != nullptr || tstate->c_profilefunc != nullptr;
  for (int tool = 0; tool < PY_MONITORING_SYS_PROFILE_ID; ++tool) {
    found = found || tstate->interp->monitoring_tool_names[tool] != nullptr;
  }
  return found;
}

// The frame is the first one of an evaluation.
inline void markEntry(Frame* frame) { frame->return_offset = 0; }

}  // namespace kintsugi::pyapi
