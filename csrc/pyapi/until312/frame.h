// Parts of frames and the thread's state that are the same up to CPython 3.12: the place in the code, and
// where the evaluator keeps the current frame. The version's own frame.h has the rest.
//
// Ownership, threads and invalidation: see pyapi/frame.h, which is what others include.
#pragma once

#include "pyapi/frame_fields.h"

namespace kintsugi::pyapi {

inline PyCodeObject* codeOf(const Frame* frame) { return frame->f_code; }
inline void setCode(Frame* frame, PyCodeObject* code) { frame->f_code = code; }

// `prev_instr` is the instruction that runs; if none does, it is the code unit *before* the next one to run.
inline int32_t runningUnit(const Frame* frame) {
  return static_cast<int32_t>(frame->prev_instr - codeUnits(frame->f_code));
}
inline void setRunningUnit(Frame* frame, int32_t unit) {
  frame->prev_instr = codeUnits(frame->f_code) + unit;
}
inline void setRunningUnit(Frame* frame, CodeUnit* units, int32_t unit) { frame->prev_instr = units + unit; }
inline int32_t resumeUnit(const Frame* frame) { return runningUnit(frame) + 1; }
inline void setResumeUnit(Frame* frame, int32_t unit) { setRunningUnit(frame, unit - 1); }
inline void setRaisingUnit(Frame* frame, int32_t unit) { setRunningUnit(frame, unit); }
inline void setCallingUnit(Frame* frame, int32_t next) { setResumeUnit(frame, next); }

inline bool evalBreakerSet(const PyThreadState* tstate) {
  return __atomic_load_n(reinterpret_cast<const int*>(&tstate->interp->ceval.eval_breaker),
                         __ATOMIC_RELAXED) != 0;
}

// Where the evaluator keeps the current frame of a thread, on the C stack: one for each nested evaluation.
using EvaluationState = _PyCFrame;
inline Frame*& currentSlot(PyThreadState*, EvaluationState& state) { return state.current_frame; }

// The state of the frame's generator while it is suspended.
inline int8_t suspendedState(const Frame*) { return FRAME_SUSPENDED; }

}  // namespace kintsugi::pyapi
