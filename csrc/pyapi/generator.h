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

// The frame is part of the generator object. It is valid until the generator has finished.
inline Frame* frameOf(PyGenObject* generator) { return reinterpret_cast<Frame*>(&generator->gi_iframe); }

// Marks the generator as suspended at its frame's place. Call setResumeUnit() first.
inline void markSuspended(PyGenObject* generator) {
  generator->gi_frame_state = suspendedState(frameOf(generator));
}

// What a suspended generator delegates to (`yield from`, `await`); borrowed; null when it does not.
PyObject* delegatesTo(PyGenObject* generator);

// The iterator that `await object` drives: a new reference, or null with TypeError pending.
PyObject* awaitableIterator(PyObject* object);

// The object as a generator. The caller has checked it with PyGen_Check() or the like. Borrowed.
inline PyGenObject* asGenerator(PyObject* object) { return reinterpret_cast<PyGenObject*>(object); }

// The value that a StopIteration carries; borrowed.
inline PyObject* stopIterationValue(PyObject* exception) {
  return reinterpret_cast<PyStopIterationObject*>(exception)->value;
}
// StopIteration(value), as `return value` in a generator raises it.
void raiseStopIteration(PyObject* value);

// Marks a value yielded by an async generator, as opposed to one passed through it by `await`. A new
// reference.
PyObject* wrapAsyncGenValue(PyObject* value);

// True if closing a suspended generator runs none of its code. That is so if it is suspended outside all
// handlers, or inside `try` statements that only handle builtin exceptions which are no base of
// GeneratorExit. Leaves no exception.
bool closesQuietly(PyGenObject* generator);

}  // namespace kintsugi::pyapi
