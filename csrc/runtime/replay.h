// Replay: runs a trace operation by operation through the dispatcher, boxed, with the values in one reused
// array.
//
// Idea: a ReplayProgram is the trace lowered once: for each instruction its operator handle, a template of
// its constant arguments, the positions of its values, and which values die there. No Python runs for pure
// tensor traces. A guard that fails and an exception both leave through a snapshot (runtime/side_exit.h),
// which rebuilds the frames and runs on.
//
// Ownership: belongs to a CompiledTrace. Threads: the program is constant; each run has its own value array.
// GIL held at entry and exit (released around long kernels by the operators' own bindings rules).
#pragma once

#include <memory>

#include "guard/guard.h"
#include "pyapi/arguments.h"
#include "pyapi/ref.h"

namespace kintsugi::recording {
struct Recording;
}

namespace kintsugi::runtime {

class CompiledTrace;
class ExitHandler;
class SegmentRunner;
struct ReplayCode;

class ReplayProgram {
 public:
  explicit ReplayProgram(const recording::Recording& recording);
  ~ReplayProgram();
  ReplayProgram(ReplayProgram&&) noexcept;

  // Runs the trace; `slots` are the resolved sources of block 0. Returns the result, a new reference, or null
  // with the user's exception pending. A side exit goes on in a side trace, or, if there is none, runs on to
  // the end of the call, so that the caller need not know of it; `handler` (may be null) decides whether that
  // is recorded. `bypassRunners`: segments are run one by one, as nothing says that their inputs are what
  // they were compiled for. A failed check throws. Then `repeatable` (may be null) is set if the run has
  // changed nothing that could be seen, so that the call can be made again in eager mode.
  PyObject* run(CompiledTrace& owner, const pyapi::Arguments& args, PyObject** slots,
                ExitHandler* handler = nullptr, bool bypassRunners = false, bool* repeatable = nullptr);

  const ReplayCode& code() const;

  // Testing: makes the guard instruction `index` (code index) fail at every run, whatever its value (exit
  // stress).
  void forceExit(size_t index);
  static uint64_t forcedExits();  // how often that has happened, in the whole process

  // Who computes the n-th segment's graph from now on; without a runner its instructions are run. To be set
  // before the trace is shared.
  void setRunner(size_t segment, std::shared_ptr<SegmentRunner> runner);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::runtime
