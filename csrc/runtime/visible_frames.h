// VisibleFrames: shows the program's frames while a step of a trace calls out. Warnings need them for file
// and line, logging for the function, and inspect and sys._getframe() return them.
//
// Idea: the frames of the step's snapshot are linked into the thread's chain of frames, with code, function
// and position. They are never evaluated. An opaque step may read its callers' locals, so for these steps
// locals are filled in, except those that can't be made without running code; containers that the trace has
// made are shown as copies. For opaque steps the exception that the innermost frame handles is also the one
// that the thread handles. Frame objects that are kept outlive the step, as those of returned functions do.
// The frames count towards the recursion limit, as in CPython.
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
