// What a step gave and turned out to be an object that the trace knows already.
//
// A guard after the step says that it is that object again. Where the guard fails, the frames have to hold
// what the step gave *then*: so the result goes by its own name until the guard is written, and by the known
// one after it. The same holds for numbers that vary, which are values of the trace after that guard only.
// Thread: the recording one, GIL held. Invalidation: the list is empty once the guard block is written.
#pragma once

#include <utility>
#include <vector>

#include "capture/shadow.h"

namespace kintsugi::capture {

struct RecordContext;

// A source, and what it is called after the guard; null: it becomes a number of the trace.
using AliasList = std::vector<std::pair<ir::SourceId, Shadow>>;

// The guard block is written: from now on frames and objects of the trace hold the known names.
void applyAliases(RecordContext& rec);

}  // namespace kintsugi::capture
