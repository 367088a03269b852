// Do the groups that a loop over itertools.groupby() gets stay in the loop? See group_uses.cc.
//
// Thread: the recording one, GIL held. Example: for k, g in groupby(x): total += sum(g)
#pragma once

#include "capture/call_context.h"

namespace kintsugi::capture {

// `ctx` is the call of groupby(), whose result the next instruction iterates over.
bool groupsStay(CallContext& ctx);

}  // namespace kintsugi::capture
