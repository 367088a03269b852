// Steps of the program in the middle of a graph: the interface by which the function that computes the graph
// has them run.
//
//   y = relu(x); obj = f(y); z = neg(obj.tensor)       f is a modelled call
//
// Such a call need not split a graph. The function that computes the graph *stops* there: it passes the
// values that the steps up to the call need (y), has the steps run, and receives the tensors that they make
// (obj.tensor). See ir/segment_stops.h.
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
  // Runs the steps before the `number`-th stop, and the call of the stop. May move values out of `given`;
  // fills `made` with values that the caller owns. False: an exception is pending, and the graph has to end
  // with it.
  virtual bool stop(size_t number, std::span<torchapi::Value> given, std::span<torchapi::Value> made) = 0;
};

// The steps of the graph that `runner` is computing on this thread (of the innermost, if there are several);
// null: there is no such graph, or it has no stops.
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
