// Parts of frames that are particular to CPython 3.12: the thread's chain of frames. Each function means the
// same in all versions; others include pyapi/frame.h.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include "pyapi/until313/references.h"

#include "pyapi/since312/frame.h"
#include "pyapi/until312/frame.h"

namespace kintsugi::pyapi {

inline Frame* currentFrame(PyThreadState* tstate) { return pastEntry(tstate->cframe->current_frame); }

// True for a frame of a service function (v312/service.h), which only CPython's evaluator may run.
bool isServiceFrame(const Frame* frame);

// Called where an evaluation begins and ends.
inline void linkEvaluation(PyThreadState* tstate, EvaluationState& state) {
  state = {.current_frame = tstate->cframe->current_frame, .previous = tstate->cframe};
  tstate->cframe = &state;
}
inline void unlinkEvaluation(PyThreadState* tstate, EvaluationState& state) {
  tstate->cframe = state.previous;
}
inline bool isTracing(const PyThreadState* tstate, const EvaluationState&) { return isTracing(tstate); }

}  // namespace kintsugi::pyapi

#include "pyapi/until313/slots.h"
