// Fields of `_PyInterpreterFrame` and of the thread's state that all versions have; the others are in the
// version's own frame.h (pyapi/v311/frame.h). pyapi/frame.h is what others include.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include <cstdint>

#include "pyapi/code.h"
#include "pyapi/internal.h"

namespace kintsugi::pyapi {

using Frame = _PyInterpreterFrame;
// An evaluator of frames (PEP 523). Arguments: thread, frame, and whether an exception is thrown into it.
using EvalFunction = _PyFrameEvalFunction;
// CPython's own evaluator: a new reference, or null with an exception pending.
inline PyObject* evaluateFrame(PyThreadState* tstate, Frame* frame, bool throwing) {
  return _PyEval_EvalFrameDefault(tstate, frame, throwing ? 1 : 0);
}

// What a frame runs, and where it looks names up; borrowed from the frame.
inline PyCodeObject* codeOf(const Frame* frame);
inline void setCode(Frame* frame, PyCodeObject* code);
inline PyObject* globalsOf(const Frame* frame) { return frame->f_globals; }
inline PyObject* builtinsOf(const Frame* frame) { return frame->f_builtins; }
// Borrowed: the namespace of a class body or module; null in functions (until somebody asked for locals()).
inline PyObject* localsDictOf(const Frame* frame) { return frame->f_locals; }

// The version's own slots.h has the variables and the value stack.

// Locals, then cells, then free variables. Borrowed; null: it has no value.
inline PyObject* localAt(const Frame* frame, int index);
// Sets the variable (steals `object`; null: unset). The caller owns the old value, which is returned.
inline PyObject* exchangeLocal(Frame* frame, int index, PyObject* value);

// While we evaluate a frame, its stack is an array of our references. takeStack() returns its top and hides
// it from the cycle collector until giveStack().
inline PyObject** stackBase(Frame* frame);
inline PyObject** takeStack(Frame* frame);
inline void giveStack(Frame* frame, PyObject** top);
// The stack of a suspended frame, or of a frame that CPython evaluates next.
inline int stackDepth(const Frame* frame);
inline PyObject* stackAt(const Frame* frame, int index);  // from the bottom; borrowed
inline void pushOn(Frame* frame, PyObject* object);       // steals it
inline PyObject* popFrom(Frame* frame);                   // owned by the caller

// For a new frame: unsets all variables and empties the stack.
inline void emptySlots(Frame* frame);
// The size of the frame in bytes, up to the top of its stack; and what has to be done in a copy of these
// bytes.
inline size_t usedSize(const Frame* frame);
inline void moveSlots(Frame* copy, const Frame* frame);

// The object that an instruction that handles an exception puts on the stack to say where it was raised: a
// new reference to an int. Null with an exception pending.
PyObject* newPlace(int32_t unit);

// The unit of the instruction that is running. (How it is stored depends on the version.)
inline int32_t runningUnit(const Frame* frame);
inline void setRunningUnit(Frame* frame, int32_t unit);
// The same, for the evaluation loop, which has the code's units at hand.
inline void setRunningUnit(Frame* frame, CodeUnit* units, int32_t unit);
// The unit that runs next when the frame is evaluated or resumed; 0 in a new frame.
inline int32_t resumeUnit(const Frame* frame);
inline void setResumeUnit(Frame* frame, int32_t unit);
// For a frame that is given to CPython's evaluator. setRaisingUnit(): the instruction at `unit` has raised.
// setCallingUnit(): the instruction that ends before `next` is a call under way.
void setRaisingUnit(Frame* frame, int32_t unit);
void setCallingUnit(Frame* frame, int32_t next);

inline bool ownedByGenerator(const Frame* frame) { return frame->owner == FRAME_OWNED_BY_GENERATOR; }
// Borrowed: the generator, coroutine or async generator that holds the frame. Only when ownedByGenerator().
inline PyGenObject* generatorOf(Frame* frame);
// True if the frame is before its first RESUME (cells and the generator object are not made yet), or if its
// code is hidden. Nobody sees such a frame.
inline bool isIncomplete(Frame* frame) { return _PyFrame_IsIncomplete(frame); }

// True if somebody holds the frame object, and may read the variables when the call is over.
inline bool isSeen(const Frame* frame) {
  return frame->frame_obj != nullptr && Py_REFCNT(frame->frame_obj) > 1;
}

// True if something needs the running thread's attention: a signal, a pending call, an asynchronous
// exception, or another thread that wants the GIL.
inline bool evalBreakerSet(const PyThreadState* tstate);

}  // namespace kintsugi::pyapi
