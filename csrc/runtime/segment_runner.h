// What runs the graph of a segment instead of its instructions: an FX backend (driver/fx_runner.h) or native
// code (runtime/native_runner.h; with gradients runtime/training_runner.h).
//
// Ownership: the ReplayProgram that a runner was given to shares it with its maker. Threads: run() may be
// called on any number of threads at a time, with the GIL held if needsGil() says so. Invalidation: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "torchapi/value.h"

namespace kintsugi::runtime {

class SegmentRunner {
 public:
  enum class Status : uint8_t {
    kOk,        // all outputs are there
    kDeclined,  // nothing was done: run the instructions
    kMeasured,  // nothing was done: run the instructions, and call replayed() with the time that they took
    kRaised,    // an exception of the computation is pending (needs the GIL); no output is there
    kFailed,    // an exception of the backend's, not of the program's: it is raised as it is
  };

  // For statistics. kPlain: native code would consist of the same calls of ATen's operators as the
  // instructions, so there is none. kRefused: there can be no native code, or it was slower than the
  // instructions.
  enum class State : uint8_t { kWaiting, kReady, kPlain, kRefused };

  virtual ~SegmentRunner() = default;
  // May run() return kRaised? Then the caller has to be able to roll the graph back.
  virtual bool raises() const { return true; }
  virtual State state() const { return State::kReady; }
  virtual uint64_t runs() const { return 0; }  // how many runs did not decline
  virtual uint64_t backwards() const {
    return 0;
  }                                            // for how many of these the runner's code ran the backward
  virtual size_t graphs() const { return 0; }  // how many graphs an FX backend was given
  // The message of an internal check that failed while the code was made or run; empty: none has. Any thread.
  virtual std::string failure() const { return {}; }
  virtual bool needsGil() const = 0;
  // A guard in the middle of the graph, which is checked after the whole graph, did not hold: the run left
  // the trace there. GIL held if needsGil() says so.
  virtual void noteSideExit() {}
  // How long the instructions took that were run after kMeasured. Any thread.
  virtual void replayed(uint64_t /*nanoseconds*/) {}
  // `inputs` as `segment` names them, borrowed (with needsGil(), tensors may come as their Python objects);
  // `outputs` as `segment.end` names them, empty, to be filled with values that the caller owns. After
  // anything but kOk they are empty again.
  virtual Status run(std::span<const torchapi::Value> inputs, std::span<torchapi::Value> outputs) = 0;
};

}  // namespace kintsugi::runtime
