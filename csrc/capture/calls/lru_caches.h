// Calls of functions that functools.lru_cache() keeps the results of.
//
// A hit is read as what it is, an entry of the wrapper's dict: a guard says that the entry is there, and the
// parts of the result are read under guards, as those of any old object. The call itself stays in the trace
// for what it counts and moves in the cache; nothing waits for it. A miss runs the program's function, which
// the trace can't look into: the call is a step then, in a trace that fits hits and misses alike.
//
//   $3 = pinned #5                 ; the wrapper's dict
//   $4 = item $3 #6                ; the entry of the arguments
//   %2 = call.known #7, #8 deferrable
//
// Thread: the recording one, GIL held.
#pragma once

#include <optional>

#include "capture/call_context.h"
#include "capture/interpreter.h"

namespace kintsugi::capture {

// Nothing: it is no such wrapper.
std::optional<Flow> cachedCall(CallContext& ctx, Shadow& result);

}  // namespace kintsugi::capture
