// Recordings whose end concerns all of the call.
//
// Mostly the function that ended a recording is one step of the next one. That is no way out where it can't
// run while anything is recorded: the callable then runs in eager mode after a few tries.
//
// For the recording under way; GIL held. Example: rec.abort(code); failWhole(rec);
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

void failWhole(RecordContext& rec);

}  // namespace kintsugi::capture
