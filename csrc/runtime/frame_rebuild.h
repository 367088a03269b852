// Makes the frames of a snapshot again and runs them to their end.
//
// Idea: only CPython can push a frame properly, so each function is *called*, with dummy arguments, while an
// evaluator of ours is installed (a generator that runs: is *resumed*). It gets a fresh frame, overwrites
// locals, stack and position, runs the frames further in first (by the same means, so that they are stacked
// right), takes over their result, and lets CPython evaluate the rest. CPython clears and pops the frame
// itself.
//
// Ownership: takes the images over; what they hold goes into the frames. Threads: GIL. The evaluator is
// installed only between the call and the moment when it receives the frame; no Python code runs in between
// (collection is held off). Invalidation: none.
#pragma once

#include <vector>

#include "ir/trace.h"
#include "pyapi/frame.h"
#include "pyapi/internal.h"
#include "pyapi/ref.h"

namespace kintsugi::runtime {

struct FrameImage {
  pyapi::Ref<> function;  // or the generator that the frame belongs to, not started yet
  pyapi::Ref<> code;
  int32_t pc = 0;
  std::vector<pyapi::Ref<>> locals;  // empty Ref: unbound
  std::vector<pyapi::Ref<>> stack;   // empty Ref: a NULL that a call expects
  ir::ReturnAction action = ir::ReturnAction::kPush;
  pyapi::Ref<> replacement;
  pyapi::Ref<> handled;      // the exception that the frame handles; empty: none
  uint16_t handledOver = 0;  // the stack slot that keeps what was handled before
};

// Who evaluates the frames that were made again; by default CPython. Methods must not throw.
class FrameRunner {
 public:
  virtual ~FrameRunner() = default;
  // Frame `index` (0: the innermost) is filled; the frames further in are made and run next.
  virtual void opened(size_t index, pyapi::Frame* frame) = 0;
  // Runs it to its end, as CPython's own evaluator would: a new reference, or null with an exception pending.
  virtual PyObject* evaluate(size_t index, PyThreadState* tstate, pyapi::Frame* frame, bool raising) = 0;
};

// Runs the frames, innermost first, and returns the result of the outermost one, or null with an exception
// pending. `raising`: an exception is pending that the innermost frame raises at its pc; otherwise it runs on
// from there. `runner` is borrowed; null: CPython.
PyObject* runFrames(std::vector<FrameImage> innermostFirst, bool raising, FrameRunner* runner = nullptr);

}  // namespace kintsugi::runtime
