// Generators, coroutines and async generators: what CPython's evaluator needs of them and does not export.
//
// Threads: the GIL is needed.
#pragma once

#include "pyapi/internal.h"
#include "pyapi/version.h"
#include KINTSUGI_VERSION_GENERATOR

namespace kintsugi::pyapi {

// What a suspended generator delegates to (`yield from`, `await`); borrowed; null when it does not.
PyObject* delegatesTo(PyGenObject* generator);

// The iterator that `await object` drives: a new reference, or null with TypeError pending.
PyObject* awaitableIterator(PyObject* object);

// The generator of an object that PyGen_Check() and its like say yes to.
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
