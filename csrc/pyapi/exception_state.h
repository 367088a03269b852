// Reads and rebuilds the exceptions that a thread handles, tracebacks, and the fields of exception objects.
//
// CPython keeps the handled exception in a stack item of the thread, or of the generator that runs.
// PUSH_EXC_INFO exchanges it with a slot of the frame's value stack.
//
//   try: f()
//   except E: g()      in g, sys.exception() is what f raised: the thread's handled exception
//
// Ownership: a Ref<> is owned, everything else is borrowed. Threads: the GIL is needed everywhere.
// Invalidation: none beyond the objects' deaths.
#pragma once

#include <functional>
#include <utility>

#include "pyapi/internal.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// The exception that `raise` without an operand would raise; borrowed. Null: none is handled.
PyObject* handledException();
// Makes `exception` (perhaps empty) the handled exception of the innermost stack item, and returns the one
// from before.
Ref<> exchangeHandled(Ref<> exception);
// The same for the evaluation loop: for this thread, with both references owned. None counts as no exception;
// PUSH_EXC_INFO leaves it on the stack if nothing was handled.
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
// Calls `visit` with each variable of those frames of a traceback that are over.
void forEachVariableOfFinishedFrames(PyObject* traceback, const std::function<void(PyObject*)>& visit);
// A traceback entry before `next` (null: none). Its frame object is that of a finished frame: it has a
// position, but no variables. Null: a Python exception is pending.
Ref<> newTraceback(const TracebackEntry& entry);

// True for code of kintsugi._polyfills. It runs in place of C functions, which leave no entry in tracebacks.
bool isPolyfill(const PyCodeObject* code);
// Removes the traceback entry of such a frame, which the pending exception has just left.
void dropPolyfillEntry(const PyCodeObject* code);

// The C class that determines the layout of a type's instances: the type itself, or its nearest base in C.
PyTypeObject* exceptionBase(PyTypeObject* type);
// Makes an instance with BaseException.__new__ and the C class's `__init__`; a C type is called. Runs no code
// of the program, since the caller knows that the type has no `__new__` in Python. Null: a Python exception
// is pending.
Ref<> newException(PyTypeObject* type, PyObject* args);
// Calls `visit` with the name of each object that the C class keeps beside the arguments, and its value in
// `exception` (null: none). Stops and returns false if `visit` returns false.
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

// Sets the context of `exception`, which was raised while `handled` was handled without the thread knowing.
// Does what CPython would have done, unless a context says so already. `outside` is what the thread really
// handles, perhaps null.
void addContext(PyObject* exception, PyObject* handled, PyObject* outside);

}  // namespace kintsugi::pyapi
