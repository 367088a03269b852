// What all opcode handlers share: the value stack, names and constants, the eval breaker.
//
// Included by the handlers' .cc files only. Stack functions move ownership exactly as CPython's macros of the
// same meaning do: push() takes over a reference, pop() hands one out. Threads: the GIL is needed.
#pragma once

#include "capture/handlers/handlers.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/frame.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

inline void push(Activation& act, PyObject* owned) { *act.sp++ = owned; }
inline void pushNew(Activation& act, PyObject* borrowed) { *act.sp++ = Py_NewRef(borrowed); }
[[nodiscard]] inline PyObject* pop(Activation& act) { return *--act.sp; }
[[nodiscard]] inline pyapi::Ref<> popRef(Activation& act) { return pyapi::steal(*--act.sp); }
inline PyObject*& top(Activation& act) { return act.sp[-1]; }
inline PyObject*& second(Activation& act) { return act.sp[-2]; }

// Pushes a new result; null means that an exception is pending.
inline Flow pushResult(Activation& act, PyObject* ownedOrNull) {
  if (ownedOrNull == nullptr) [[unlikely]] {
    return Flow::kRaise;
  }
  push(act, ownedOrNull);
  return Flow::kNext;
}

inline Flow pushBool(Activation& act, bool value) {
  pushNew(act, value ? Py_True : Py_False);
  return Flow::kNext;
}

inline PyObject* nameArg(const Activation& act, const Instr& instr) {
  return pyapi::nameAt(pyapi::codeOf(act.frame), instr.arg);
}
inline PyObject* constArg(const Activation& act, const Instr& instr) {
  return pyapi::constantAt(pyapi::codeOf(act.frame), instr.arg);
}

// Replaces a local. The old value is dropped last, because its finalizer may look at the frame.
inline void setLocal(Activation& act, uint32_t index, PyObject* owned) {
  Py_XDECREF(pyapi::exchangeLocal(act.frame, static_cast<int>(index), owned));
}

// After calls and backward jumps: serves signals, pending calls and requests for the GIL.
Flow serveEvalBreaker(Activation& act);
inline Flow checkEvalBreaker(Activation& act) {
  if (pyapi::evalBreakerSet(act.tstate)) [[unlikely]] {
    return serveEvalBreaker(act);
  }
  return Flow::kNext;
}

}  // namespace kintsugi::capture
