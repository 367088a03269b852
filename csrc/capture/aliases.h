// Results of steps that turned out to be objects that the trace already knows.
//
// A guard after the step says that the result is that object again. Where the guard fails, the frames have to
// hold what the step returned in *that* run. So the result keeps a name of its own until the guard is
// written, and gets the known name after it. The same holds for numbers that vary: they are values of the
// trace only after that guard.
// Thread: the recording one, GIL held. Invalidation: the list is empty once the guard block is written.
#pragma once

#include <utility>
#include <vector>

#include "capture/shadow.h"

namespace kintsugi::capture {

struct RecordContext;

// A source, and its shadow after the guard; null if it becomes a number of the trace.
using AliasList = std::vector<std::pair<ir::SourceId, Shadow>>;

// Called when the guard block is written: replaces the sources by their known shadows in all frames and
// objects.
void applyAliases(RecordContext& rec);

}  // namespace kintsugi::capture
