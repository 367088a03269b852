// The exceptions that a thread handles, tracebacks, and the parts of exception objects: read, and made again.
//
// CPython keeps what is handled in a stack item of the thread, or of the generator that runs; PUSH_EXC_INFO
// exchanges it with a slot of the frame's value stack. Ownership: `newRef`-style results are owned,
// everything else is borrowed. Threads: the GIL is needed everywhere. Invalidation: none beyond the objects'
// deaths.
#pragma once

#include <functional>
#include <utility>

#include "pyapi/internal.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// What `raise` without an operand would raise again; borrowed, null: nothing is handled.
PyObject* handledException();
// Makes `exception` (perhaps empty) what the innermost item of the running code says, and gives what it said
// before.
Ref<> exchangeHandled(Ref<> exception);
// The same, for the evaluation loop: of this thread, and both are references that somebody owns. None, which
// PUSH_EXC_INFO leaves on the stack where nothing was handled, stands for nothing.
inline PyObject* exchangeHandled(PyThreadState* tstate, PyObject* exception) {
  if (exception == Py_None) Py_CLEAR(exception);
  return std::exchange(tstate->exc_info->exc_value, exception);
}

// One entry of a traceback.
struct TracebackEntry {
  PyObject* next = nullptr;  // null: the last one
  PyObject* code = nullptr;
  PyObject* globals = nullptr;
  int32_t unit = 0;  // the code unit of the instruction
};
TracebackEntry entryOf(PyObject* traceback);
// Calls `visit` with each variable of the frames of a traceback that are over.
void forEachLeftVariable(PyObject* traceback, const std::function<void(PyObject*)>& visit);
// A traceback of an entry before `next` (null: none). Its frame object stands for a frame that is over: it
// has a position, but no variables. Null: a Python exception is pending.
Ref<> newTraceback(const TracebackEntry& entry);

// Code of kintsugi._polyfills and its parts: it stands for C functions, which leave no entry in tracebacks.
bool isPolyfill(const PyCodeObject* code);
// Takes the entry of such a frame, which was left by the pending exception, out of the traceback.
void dropPolyfillEntry(const PyCodeObject* code);

// The class in C that lays out a type's instances: itself, or the nearest base.
PyTypeObject* exceptionBase(PyTypeObject* type);
// An instance as BaseException.__new__ and the __init__ in C make it; a type in C is called. No code of the
// program runs: the caller knows that the type has no __new__ in Python. Null: a Python exception is pending.
Ref<> newException(PyTypeObject* type, PyObject* args);
// Calls `visit` with the name of each object that the class in C keeps beside the arguments, and its value in
// `exception` (null: none). False as soon as `visit` says so.
bool forEachField(PyObject* exception, const std::function<bool(PyObject* name, PyObject* value)>& visit);

struct ExceptionParts {
  PyObject* args = nullptr;
  PyObject* cause = nullptr;
  PyObject* context = nullptr;
  PyObject* traceback = nullptr;
  PyObject* dict = nullptr;
  bool suppress = false;
};
ExceptionParts partsOf(PyObject* exception);
void setLinks(PyObject* exception, Ref<> cause, Ref<> context, bool suppress, Ref<> traceback);

// `exception` was raised while `handled` was handled, which the thread did not know: as CPython would have,
// but for an exception that says so already. `outside` is what the thread handles in fact, perhaps null.
void addContext(PyObject* exception, PyObject* handled, PyObject* outside);

}  // namespace kintsugi::pyapi
