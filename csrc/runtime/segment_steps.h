// Steps of the program in the middle of a graph: how the function that computes the graph has them made.
//
// Idea: a modelled call that tensor operations on both sides depend on need not split a graph. The function
// that computes the graph *stops* there: it passes the values that the steps up to the call need, has them
// run, and receives the tensors that they make (ir/segment_stops.h).
//
// Ownership: a run's own, for as long as the graph is computed. Threads: of the run. GIL held.
#pragma once

#include <span>

#include "torchapi/value.h"

namespace kintsugi::runtime {

class SegmentRunner;

class SegmentSteps {
 public:
  virtual ~SegmentSteps() = default;
  // Runs what stands before the `number`-th stop, and the stop. What it takes of `given` it leaves empty;
  // `made` is filled with tensors that the caller owns. False: an exception is pending, with which the graph
  // is to be left.
  virtual bool stop(size_t number, std::span<torchapi::Value> given, std::span<torchapi::Value> made) = 0;
};

// Those of the graph that `runner` computes on this thread, innermost first; null: it computes none that has
// any.
SegmentSteps* stepsOf(const SegmentRunner* runner);

class SegmentStepsScope {
 public:
  SegmentStepsScope(const SegmentRunner* runner, SegmentSteps* steps);  // `steps` may be null
  ~SegmentStepsScope();
  SegmentStepsScope(const SegmentStepsScope&) = delete;

 private:
  friend SegmentSteps* stepsOf(const SegmentRunner*);
  const SegmentRunner* runner_;
  SegmentSteps* steps_;
  SegmentStepsScope* outer_;
};

}  // namespace kintsugi::runtime
