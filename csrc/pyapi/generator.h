// Generators, coroutines and async generators: what CPython's evaluator needs of them and does not export.
//
// Threads: the GIL is needed.
#pragma once

#include "pyapi/frame.h"

namespace kintsugi::pyapi {

enum class GeneratorState : int8_t { kCreated, kSuspended, kRunning, kFinished };

inline GeneratorState stateOf(const PyGenObject* generator) {
  const int state = generator->gi_frame_state;
  if (state == FRAME_CREATED) return GeneratorState::kCreated;
  if (state == FRAME_EXECUTING) return GeneratorState::kRunning;
  return state < FRAME_EXECUTING ? GeneratorState::kSuspended : GeneratorState::kFinished;
}

// The frame lies in the generator; it is there until the generator has finished.
inline Frame* frameOf(PyGenObject* generator) { return reinterpret_cast<Frame*>(&generator->gi_iframe); }

// It waits in its frame's place (setResumeUnit() comes first).
inline void markSuspended(PyGenObject* generator) {
  generator->gi_frame_state = suspendedState(frameOf(generator));
}

// What a suspended generator delegates to (`yield from`, `await`); borrowed; null when it does not.
PyObject* delegatesTo(PyGenObject* generator);

// The iterator that `await object` drives: a new reference, or null with TypeError pending.
PyObject* awaitableIterator(PyObject* object);

// The same object, borrowed, as the generator that PyGen_Check() or its like has found it to be.
inline PyGenObject* asGenerator(PyObject* object) { return reinterpret_cast<PyGenObject*>(object); }

// What a StopIteration says; borrowed.
inline PyObject* stopIterationValue(PyObject* exception) {
  return reinterpret_cast<PyStopIterationObject*>(exception)->value;
}
// StopIteration(value), as `return value` in a generator raises it.
void raiseStopIteration(PyObject* value);

// Marks a value yielded by an async generator, as opposed to one passed through it by `await`. A new
// reference.
PyObject* wrapAsyncGenValue(PyObject* value);

// Does closing a generator that waits run none of its code? It does not where it waits outside all handlers,
// nor inside `try` statements whose handlers are for exceptions of builtins alone, which GeneratorExit is
// none of. No exception is left.
bool closesQuietly(PyGenObject* generator);

}  // namespace kintsugi::pyapi
