// CPython 3.12's frames, where they differ: the chain that a thread keeps of them. What each function means
// is the same in each version; pyapi/frame.h is what others include.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include "pyapi/until313/references.h"

#include "pyapi/since312/frame.h"
#include "pyapi/until312/frame.h"

namespace kintsugi::pyapi {

inline Frame* currentFrame(PyThreadState* tstate) { return pastEntry(tstate->cframe->current_frame); }

// A frame of code that is there to have CPython's evaluator do something: only that may run it.
bool isServiceFrame(const Frame* frame);

// An evaluation begins and ends.
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
