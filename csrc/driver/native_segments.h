// The native backend: each segment of a trace is compiled in the background once it has run, and its code
// swapped in.
//
// Idea: replay runs a segment until its code is there (runtime/native_runner.h). The first run that wants
// code queues the segment for one thread of ours, which needs neither the GIL nor the trace: a segment keeps
// a copy of what it has to know. What can't be compiled stays with replay, with a reason in the log.
//
// Ownership: runners belong to the trace; the queue holds them weakly. Threads: any; attachNative() needs the
// GIL. Fork: the child goes on with an empty thread and the same queue. Exit: stopNative() joins the thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/compiled_trace.h"

namespace kintsugi::driver {

struct NativeOptions {
  bool enabled = false;
  bool sync = false;        // compile before the trace is installed
  bool strict = false;      // bit by bit what eager mode gives
  bool contract = false;    // operators may be rounded as one
  bool keepMemory = false;  // of what does not leave a segment, for the next run
  bool autotune = false;    // compare longer before the faster way is kept
};

// Gives each segment of `trace`, which is not shared yet, a runner.
void attachNative(runtime::CompiledTrace& trace, const NativeOptions& options);

// Waits until nothing is queued or being compiled; seconds < 0: as long as it takes. False: it took longer.
// Without the GIL.
bool waitForNative(double seconds);
// How much is queued or being compiled.
size_t nativeBacklog();
// At the end of the process, without the GIL.
void stopNative();
// Registers what keeps forked children sound. Once.
void installNativeForkHandlers();

struct NativeCounts {
  size_t segments = 0;
  size_t ready = 0;
  size_t plain = 0;  // calls of ATen's operators alone
  size_t refused = 0;
  uint64_t runs = 0;
  uint64_t backwards = 0;  // of segments that autograd follows
};
// Of a trace and its side traces.
void countNative(runtime::CompiledTrace& trace, NativeCounts& counts);
// What failed checks have said where code of a trace and its side traces was made or run.
void collectFailures(runtime::CompiledTrace& trace, std::vector<std::string>& texts);

}  // namespace kintsugi::driver
