// A stretch of a call that is not recorded: C code that calls Python, an opaque step.
//
// Lives on the C stack of the handler that pauses; nests. The recording thread, GIL held. Example:
//   { Paused paused(rec); flow = rec.execute(act, instr); }
#pragma once

#include "capture/recorder.h"

namespace kintsugi::capture {

struct Paused {
  explicit Paused(Recorder& rec) : rec(rec) { ++rec.paused_; }
  ~Paused() { --rec.paused_; }
  Recorder& rec;
};

}  // namespace kintsugi::capture
