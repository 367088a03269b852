// The place of a call's callable: the two slots of the value stack below the arguments.
//
// The lower slot has an unbound method, with its self above it. Any other callable has a null beside it,
// below or above depending on the version of CPython. `lower` is the depth of the lower slot; peek(1) is the
// top.
// Thread: the one that runs the frame, with the GIL. Example: act.peek(calleeDepth(act, count + 2))
#pragma once

#include "capture/interpreter.h"
#include "capture/shadow.h"
#include "pyapi/functions.h"

namespace kintsugi::capture {

inline bool callsMethod(Activation& act, int lower) {
  return act.peek(lower) != nullptr && act.peek(lower - 1) != nullptr;
}
inline int calleeDepth(Activation& act, int lower) { return act.peek(lower) != nullptr ? lower : lower - 1; }

// A callable with its null, as LOAD_GLOBAL and LOAD_METHOD leave them.
inline void pushCallable(ShadowFrame& frame, Shadow callable) {
  if (pyapi::kNullBelowCallable) frame.push(Shadow::null());
  frame.push(callable);
  if (!pyapi::kNullBelowCallable) frame.push(Shadow::null());
}
// The depth of the callable after pushCallable().
inline constexpr int kPushedCallable = pyapi::kNullBelowCallable ? 1 : 2;

}  // namespace kintsugi::capture
