// CPython 3.12's generators: their state and their frame. pyapi/generator.h is what others include.
//
// Ownership: everything is borrowed. Threads: the GIL is needed.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

enum class GeneratorState : int8_t { kCreated, kSuspended, kRunning, kFinished };

inline GeneratorState stateOf(const PyGenObject* generator) {
  switch (generator->gi_frame_state) {
    case FRAME_CREATED:
      return GeneratorState::kCreated;
    case FRAME_SUSPENDED:
      return GeneratorState::kSuspended;
    case FRAME_EXECUTING:
      return GeneratorState::kRunning;
    default:
      return GeneratorState::kFinished;
  }
}
inline void markSuspended(PyGenObject* generator) { generator->gi_frame_state = FRAME_SUSPENDED; }

// The frame lies in the generator; it is there until the generator has finished.
inline _PyInterpreterFrame* frameOf(PyGenObject* generator) {
  return reinterpret_cast<_PyInterpreterFrame*>(generator->gi_iframe);
}
inline PyCodeObject* codeOf(const PyGenObject* generator) {
  return frameOf(const_cast<PyGenObject*>(generator))->f_code;
}

}  // namespace kintsugi::pyapi
