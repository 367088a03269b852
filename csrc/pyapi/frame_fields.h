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
// Who evaluates frames (PEP 523): (thread, frame, is an exception thrown into it?) to a result.
using EvalFunction = _PyFrameEvalFunction;
// CPython's own evaluator: a new reference, or null with an exception pending.
inline PyObject* evaluateFrame(PyThreadState* tstate, Frame* frame, bool throwing) {
  return _PyEval_EvalFrameDefault(tstate, frame, throwing ? 1 : 0);
}

// What a frame runs, and where it looks names up. All of them borrowed from the frame.
inline PyCodeObject* codeOf(const Frame* frame);
inline void setCode(Frame* frame, PyCodeObject* code);
inline PyObject* globalsOf(const Frame* frame) { return frame->f_globals; }
inline PyObject* builtinsOf(const Frame* frame) { return frame->f_builtins; }
// Borrowed: the namespace of a class body or module; null in functions (until somebody asked for locals()).
inline PyObject* localsDictOf(const Frame* frame) { return frame->f_locals; }

// The version's own slots.h has the variables and the value stack.

// Locals, then cells, then free variables. Borrowed; null: it has no value.
inline PyObject* localAt(const Frame* frame, int index);
// Gives it a value (stolen; null: none). The one that it had is returned, and owned by the caller.
inline PyObject* exchangeLocal(Frame* frame, int index, PyObject* value);

// While we evaluate a frame its stack is an array of references of ours: takeStack() gives its top, and hides
// it from the cycle collector until giveStack().
inline PyObject** stackBase(Frame* frame);
inline PyObject** takeStack(Frame* frame);
inline void giveStack(Frame* frame, PyObject** top);
// The stack of a frame that waits, or that CPython evaluates next.
inline int stackDepth(const Frame* frame);
inline PyObject* stackAt(const Frame* frame, int index);  // from the bottom; borrowed
inline void pushOn(Frame* frame, PyObject* object);       // steals it
inline PyObject* popFrom(Frame* frame);                   // owned by the caller

// Of a new frame: no variable has a value, and the stack is empty.
inline void emptySlots(Frame* frame);
// How many bytes the frame takes up to the top of its stack, and what is to be done in a copy of them.
inline size_t usedSize(const Frame* frame);
inline void moveSlots(Frame* copy, const Frame* frame);

// What an instruction that handles an exception puts on the stack to say where it was raised: a new
// reference, an int. Null with an exception pending.
PyObject* newPlace(int32_t unit);

// The place in the code (the version says how it is kept): the instruction that runs ...
inline int32_t runningUnit(const Frame* frame);
inline void setRunningUnit(Frame* frame, int32_t unit);
// The same, for the evaluation loop, which has the code's units at hand.
inline void setRunningUnit(Frame* frame, CodeUnit* units, int32_t unit);
// ... and the code unit that runs next when a frame is evaluated, or resumed; 0 in a new frame.
inline int32_t resumeUnit(const Frame* frame);
inline void setResumeUnit(Frame* frame, int32_t unit);
// Of a frame that is given to CPython's evaluator: the instruction at `unit` has raised, or the one that ends
// before `next` is a call under way.
void setRaisingUnit(Frame* frame, int32_t unit);
void setCallingUnit(Frame* frame, int32_t next);

inline bool ownedByGenerator(const Frame* frame) { return frame->owner == FRAME_OWNED_BY_GENERATOR; }
// Borrowed: the generator, coroutine or async generator that holds the frame. Only when ownedByGenerator().
inline PyGenObject* generatorOf(Frame* frame);
// Before the first RESUME (cells and the generator object are not made yet) or of hidden code: nobody sees
// the frame.
inline bool isIncomplete(Frame* frame) { return _PyFrame_IsIncomplete(frame); }

// Somebody holds the frame's object, and may read the variables when the call is over.
inline bool isSeen(const Frame* frame) {
  return frame->frame_obj != nullptr && Py_REFCNT(frame->frame_obj) > 1;
}

// Something asks the running thread for attention: a signal, a pending call, an asynchronous exception or
// another thread that wants the GIL.
inline bool evalBreakerSet(const PyThreadState* tstate);

}  // namespace kintsugi::pyapi
