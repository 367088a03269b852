// Calls of functions that are wrapped by functools.lru_cache().
//
// A hit reads an entry of the wrapper's dict: a guard says that the entry is there, and the parts of the
// result are read under guards, as those of any older object. The call itself stays in the trace, because it
// counts hits and moves the entry in the cache. It may be deferred. A miss runs the program's function inside
// C code, where the trace can't look: the call is a step then, in a trace that fits hits and misses alike,
// and everything is read again behind it. So it is for a hit whose arguments can't be pinned (a method of the
// object that the compiled callable is given), which may be a miss in another run.
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
