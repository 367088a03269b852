// Inside runtime only: one run of a segment's graph by its runner, and what to do when that fails.
//
//   segment [%0]
//   %1 = aten.relu_.default %0            writes to an input
//   %2 = aten.index.Tensor %1, [%3]       raises: an index is out of range
//   segment.end [%2]
//
// An exception inside a graph shows neither which instruction raised nor the frames at that point. So the
// graph is rolled back, and its instructions are run one by one: the one that raises has a snapshot. To roll
// back is to drop the results, to restore the random generator's state, and to restore what the graph has
// written to, of which a copy was made (runtime/segment_writes.h): %0 here. An operator may have written a
// part before it raises, which no version counter shows. Where that is not possible (views that autograd
// follows, operators of libraries), the exception leaves through the snapshot where the segment begins.
//
// A graph may also have written, by the end of its run, what the program would write behind a guard that is
// looked at then (passes/waiting_writes.h). If that guard fails, the graph is rolled back likewise.
//
// Ownership: borrows everything. Threads: a run's own; GIL as the runner needs it. Invalidation: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/types.h"
#include "runtime/segment_runner.h"
#include "runtime/segment_steps.h"
#include "torchapi/op_effects.h"
#include "torchapi/tensor_backup.h"
#include "torchapi/value.h"

namespace kintsugi::runtime {

struct SegmentCode {
  // See ir::SegmentStop. `offGraph`: how many of the steps of SegmentCode::offGraph come before the stop.
  struct Stop {
    std::vector<ir::ValueId> given;
    std::vector<ir::ValueId> made;
    size_t offGraph = 0;
  };
  // An input that the graph writes to. `copied`: its elements have to be restored to run the graph again.
  struct Restored {
    size_t input = 0;
    bool copied = true;
  };
  // A value of the graph whose memory the graph writes to, and the step that makes it.
  struct Rewritten {
    size_t step = 0;
    ir::ValueId value = 0;
  };
  size_t beginStep = 0;
  size_t endStep = 0;
  std::vector<ir::ValueId> inputs;
  std::vector<ir::ValueId> outputs;
  std::vector<size_t> graph;     // steps of the graph
  std::vector<size_t> offGraph;  // steps between the marks that are not in the graph: they run after it
  std::vector<bool> shows;       // by step of `offGraph`: an operand is a value that the graph makes
  std::vector<Stop> stops;
  // By step of `offGraph`: objects that die before it. The program may notice when an object dies.
  std::vector<std::vector<ir::ValueId>> dropsBefore;
  std::vector<ir::ValueId> drops;  // other values that are used last between the marks: dropped after it
  bool dropsObjects = false;       // some of `drops` are objects
  std::vector<Rewritten> rewritten;
  std::vector<Restored> restored;
  bool writes = false;
  bool writesUnseen = false;
  bool random = false;
  std::vector<size_t> draws;  // steps of the graph that draw, if it may be left at a step that is not of it
  size_t lastWrite = 0;       // the last step of the graph that writes to what is older than the graph
  bool keeps = false;         // there is one; what frames behind it hold are outputs
  bool rollsBack = false;     // there is one, and the run may leave in front of it
  std::vector<ir::ValueId> asked;  // older tensors that are read when the graph has run, as in front of it
  bool changesGradMode = false;
  std::shared_ptr<SegmentRunner> runner;  // set before the program is shared
};

enum class SegmentOutcome : uint8_t {
  kDone,      // the outputs are in `values`
  kOneByOne,  // nothing has happened: run the instructions
  kMeasured,  // nothing has happened: run the instructions, and tell the runner how long that took
  kRaised,    // an exception is pending, and the graph can't be rolled back
  kFailed,    // an exception of the backend is pending, not of the program
};

// The state that has to be restored, or unchanged, for a graph to be run again.
class RerunState {
 public:
  // `inputs`: of the graph.
  RerunState(const SegmentCode& segment, std::span<const torchapi::Value> inputs);
  // False: something was written that can't be restored.
  bool restore(std::span<const torchapi::Value> inputs) const;
  // May the graph write to this tensor?
  bool mayWriteTo(std::span<const torchapi::Value> inputs, const torchapi::Value& tensor) const;
  // False: the graph writes to something of which nothing is known, or no copy could be made.
  bool isKnown() const {
    return known_ && !segment_.writesUnseen && backups_.size() == segment_.restored.size();
  }

 private:
  static bool isShared(std::span<const torchapi::Value> inputs, size_t written);

  const SegmentCode& segment_;
  bool gradMode_ = true;
  bool known_ = true;
  std::optional<torchapi::GeneratorState> generator_;
  std::vector<uint64_t> versions_;
  std::vector<torchapi::TensorBackup> backups_;  // of SegmentCode::restored
};

// `steps`: runs the steps of the graph's stops (segment_steps.h); null if it has none. `before`: is filled if
// the segment `rollsBack`.
SegmentOutcome runSegment(const SegmentCode& segment, torchapi::Value* values, SegmentSteps* steps,
                          std::optional<RerunState>& before);

}  // namespace kintsugi::runtime
