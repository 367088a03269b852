// Leaves a trace through a snapshot: takes the frames' contents out of the run.
//
// All slots of all frames of a snapshot are made in one materialization, so that aliases between frames are
// kept. The caller then drops the run's own values (the frames hold what they need) and hands the images to
// runFrames(). Ownership: the images own everything in them. Threads: GIL. Invalidation: none.
#pragma once

#include <vector>

#include "ir/trace.h"
#include "runtime/exit_context.h"
#include "runtime/frame_rebuild.h"
#include "runtime/materialize.h"

namespace kintsugi::runtime {

// Can the frames of a snapshot be made again?
bool isRebuildable(const ir::Trace& trace, ir::StateId state);

// Appends the frames of snapshot `state`, innermost first. A pending exception stays pending. False: an
// object could not be made, and the exception that says so is pending instead. `context`: its tables are
// filled, too (null: no side trace is recorded).
bool captureFrames(const RunView& run, ir::StateId state, std::vector<FrameImage>& images,
                   ExitContext* context = nullptr);

}  // namespace kintsugi::runtime
