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
    kMeasured,  // likewise, and tell by replayed() how long they have taken
    kRaised,    // an exception of the computation is pending (needs the GIL); no output is there
    kFailed,    // an exception that is to be raised as it is: the backend's, not the program's
  };

  // Of what is to run the graph, for statistics. kPlain: the graph is calls of ATen's operators, which is
  // what its instructions are; kRefused: it can't be run otherwise than by them, or has turned out to be
  // faster so.
  enum class State : uint8_t { kWaiting, kReady, kPlain, kRefused };

  virtual ~SegmentRunner() = default;
  // May run() return kRaised? Then whoever calls it has to be able to take the graph back.
  virtual bool raises() const { return true; }
  virtual State state() const { return State::kReady; }
  virtual uint64_t runs() const { return 0; }       // that were not declined
  virtual uint64_t backwards() const { return 0; }  // ... and have been run backwards by the runner's code
  virtual size_t graphs() const { return 0; }       // that a backend of somebody else's was given
  // What a failed check of ours has said where its code was made or run; empty: none has failed. Any thread.
  virtual std::string failure() const { return {}; }
  virtual bool needsGil() const = 0;
  // A guard that stands in the middle of the graph, and is checked after it, did not hold. The run goes on
  // elsewhere. GIL held where needsGil() says so.
  virtual void left() {}
  // How long the instructions took that were run after kMeasured. Any thread.
  virtual void replayed(uint64_t /*nanoseconds*/) {}
  // `inputs` as `segment` names them, borrowed (with needsGil(), tensors may come as their Python objects);
  // `outputs` as `segment.end` names them, empty, to be filled with values that the caller owns. After
  // anything but kOk they are empty again.
  virtual Status run(std::span<const torchapi::Value> inputs, std::span<torchapi::Value> outputs) = 0;
};

}  // namespace kintsugi::runtime
