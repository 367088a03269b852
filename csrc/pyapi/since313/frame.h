// Parts of frames that are the same since CPython 3.13: the code and the place in it, the thread's chain of
// frames, and the request for the evaluator to stop. Each function means the same in all versions; others
// include pyapi/frame.h.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include "pyapi/since312/frame.h"

namespace kintsugi::pyapi {

inline PyCodeObject* codeOf(const Frame* frame) {
  return reinterpret_cast<PyCodeObject*>(objectIn(frame->f_executable));
}
inline void setCode(Frame* frame, PyCodeObject* code) {
  fillSlot(frame->f_executable, reinterpret_cast<PyObject*>(code));
}

// `instr_ptr` is the instruction that runs, or, if none does, the next one to run.
inline int32_t runningUnit(const Frame* frame) {
  return static_cast<int32_t>(frame->instr_ptr - codeUnits(codeOf(frame)));
}
inline void setRunningUnit(Frame* frame, int32_t unit) { frame->instr_ptr = codeUnits(codeOf(frame)) + unit; }
inline void setRunningUnit(Frame* frame, CodeUnit* units, int32_t unit) { frame->instr_ptr = units + unit; }
inline int32_t resumeUnit(const Frame* frame) { return runningUnit(frame); }
inline void setResumeUnit(Frame* frame, int32_t unit) { setRunningUnit(frame, unit); }

// The upper bits are the version of the instrumentation.
inline bool evalBreakerSet(const PyThreadState* tstate) {
  return (__atomic_load_n(&tstate->eval_breaker, __ATOMIC_RELAXED) & _PY_EVAL_EVENTS_MASK) != 0;
}

// The thread itself has the current frame. At its end, an evaluation restores the frame that it found.
struct EvaluationState {
  Frame* outer = nullptr;
};
inline Frame*& currentSlot(PyThreadState* tstate, EvaluationState&) { return tstate->current_frame; }
inline Frame* currentFrame(PyThreadState* tstate) { return pastEntry(tstate->current_frame); }
inline void linkEvaluation(PyThreadState* tstate, EvaluationState& state) {
  state.outer = tstate->current_frame;
}
inline void unlinkEvaluation(PyThreadState* tstate, EvaluationState& state) {
  tstate->current_frame = state.outer;
}
inline bool isTracing(const PyThreadState* tstate, const EvaluationState&) { return isTracing(tstate); }

// The state of the frame's generator while it is suspended. The RESUME that follows says whether it
// delegates.
inline int8_t suspendedState(const Frame* frame) {
  return (frame->instr_ptr->op.arg & 3) >= 2 ? FRAME_SUSPENDED_YIELD_FROM : FRAME_SUSPENDED;
}

// Service functions make CPython's evaluator do something. They are not needed since CPython 3.13, which
// exports functions for all of that.
inline bool isServiceFrame(const Frame*) { return false; }

}  // namespace kintsugi::pyapi
