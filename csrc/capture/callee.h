// Where a call has what it calls: in the two slots of the value stack below the arguments.
//
// An unbound method lies in the lower one, with its self above it. Anything else has a null beside it, on the
// side where the version of CPython puts it. `lower` is the depth of the lower slot; peek(1) is the top.
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
// Where the callable lies then.
inline constexpr int kPushedCallable = pyapi::kNullBelowCallable ? 1 : 2;

}  // namespace kintsugi::capture
