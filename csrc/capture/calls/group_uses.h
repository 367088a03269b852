// Checks that the groups of itertools.groupby() stay in the loop that takes them. See group_uses.cc.
//
// Thread: the recording one, GIL held. Example: for k, g in groupby(x): total += sum(g)
#pragma once

#include "capture/call_context.h"

namespace kintsugi::capture {

// True if they do. `ctx` is the call of groupby(); the next instruction iterates over its result.
bool groupsDoNotEscape(CallContext& ctx);

}  // namespace kintsugi::capture
