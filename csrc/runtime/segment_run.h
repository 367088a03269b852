// Inside runtime only: one run of a segment's graph by its runner, and what to do when that fails.
//
// Idea: an exception inside a graph shows neither which instruction raised nor the frames at that point. So
// the graph is rolled back and its instructions are run one by one: the one that raises has a snapshot.
// Rolling back means dropping the results and restoring the random generator's state. A graph that has
// written to tensors (their version counters show it) can't be rolled back: then the exception leaves through
// the snapshot where the segment begins.
//
// Ownership: borrows everything. Threads: a run's own; GIL as the runner needs it. Invalidation: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ir/types.h"
#include "runtime/segment_runner.h"
#include "runtime/segment_steps.h"
#include "torchapi/value.h"

namespace kintsugi::runtime {

struct SegmentCode {
  // See ir::SegmentStop. `offGraph`: so many of the steps below are run when the graph has come to it.
  struct Stop {
    std::vector<ir::ValueId> given;
    std::vector<ir::ValueId> made;
    size_t offGraph = 0;
  };
  size_t beginStep = 0;
  size_t endStep = 0;
  std::vector<ir::ValueId> inputs;
  std::vector<ir::ValueId> outputs;
  std::vector<size_t> graph;     // steps of the graph
  std::vector<size_t> offGraph;  // steps of the body that are not in the graph: they run after it
  std::vector<bool> shows;       // by step of `offGraph`: it is given something that the graph makes
  std::vector<Stop> stops;
  // By step of `offGraph`: objects that die before it. The program may notice when an object goes.
  std::vector<std::vector<ir::ValueId>> dropsBefore;
  std::vector<ir::ValueId> drops;  // what else dies between the marks and is there when a runner has stood in
  bool dropsObjects = false;       // some of them are objects
  std::vector<ir::ValueId> rewritten;  // of the graph's values: those in memory that it writes to
  bool writes = false;
  bool writesUnseen = false;
  bool random = false;
  bool changesGradMode = false;
  std::shared_ptr<SegmentRunner> runner;  // set before the program is shared
};

enum class SegmentOutcome : uint8_t {
  kDone,      // the outputs are in `values`
  kOneByOne,  // nothing has happened: run the instructions
  kMeasured,  // likewise, and tell the runner how long that takes
  kRaised,    // an exception is pending, and writes can't be taken back
  kFailed,    // an exception is pending that is none of the program's
};

// `steps`: those that the graph stops at; null where there are none.
SegmentOutcome runSegment(const SegmentCode& segment, torchapi::Value* values, SegmentSteps* steps);

}  // namespace kintsugi::runtime
