// While a step of a trace calls out, the program's frames are to be seen: by warnings (which file and line),
// by logging (which function), by inspect and sys._getframe().
//
// Idea: the frames of the step's snapshot are put on the thread's chain of frames, with code, function and
// position. They are never evaluated. For steps that are not looked into, which may read their callers'
// locals, these are there too, but for those that can't be made without running code; what the trace has made
// is shown as a copy. For such steps the exception that the innermost of the frames handles is the one that
// the thread handles. Frame objects that somebody made of them and kept live on, as those of returned
// functions do. They count towards the recursion limit, as in CPython.
//
// Ownership: borrows code and functions from the run for as long as it lives; frame objects that survive get
// references of their own. Threads: GIL; lives on the stack of the thread that runs the trace. Invalidation:
// gone with the step.
#pragma once

#include <vector>

#include "pyapi/shown_frames.h"
#include "runtime/materialize.h"

namespace kintsugi::runtime {

enum class Locals : uint8_t { kHidden, kShown };

class VisibleFrames {
 public:
  // Shows the frames of `state` (nothing for kNone). Leaves the exception state as it is.
  VisibleFrames(const RunView& run, ir::StateId state, Locals locals = Locals::kHidden);
  ~VisibleFrames();
  VisibleFrames(const VisibleFrames&) = delete;
  VisibleFrames& operator=(const VisibleFrames&) = delete;

 private:
  void handle(Materializer& make, const ir::Trace& trace, ir::StateId state);

  std::vector<pyapi::Ref<>> functions_;  // of the frames, which borrow them
  pyapi::ShownFrames frames_;
  bool handles_ = false;
  pyapi::Ref<> handledBefore_;
};

}  // namespace kintsugi::runtime
