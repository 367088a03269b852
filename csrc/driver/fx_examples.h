// Example inputs for FX backends: tensors that look like the inputs of a segment that is compiled before its
// first run, and the global state (grad mode, autocast) that it will run in.
//
// Ownership: an Examples borrows the recording and the objects. Threads: GIL. Invalidation: none, as it lives
// while a trace is installed.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/reach.h"
#include "ir/segments.h"
#include "runtime/compiled_trace.h"
#include "torchapi/op_effects.h"

namespace kintsugi::driver {

// The state in which instruction `end` runs, as far as a trace says.
struct StateAt {
  bool known = true;  // autocast and the like are as they were at entry
  bool gradMode = true;
};
StateAt stateAt(const recording::Recording& recording, uint32_t end);

// Inputs for segments that are compiled before they run: the objects that the entry guards resolve, and for
// tensors that the trace has made others that look like them.
class Examples {
 public:
  // `objects`: what lies at the sources; empty if that is not at hand.
  Examples(const recording::Recording& recording, const std::vector<pyapi::Ref<>>& objects);
  // Empty, without an exception: their metadata is not known.
  pyapi::Ref<> of(const ir::SegmentRange& range);
  // Of the last segment: those that are no objects of the call, and None for these; null if there are none.
  pyapi::Ref<> takeMade() { return std::move(made_); }

 private:
  pyapi::Ref<> found(ir::ValueId value) const;
  pyapi::Ref<> looksLike(ir::ValueId value) const;

  const recording::Recording& recording_;
  const ir::Trace& trace_;
  const std::vector<pyapi::Ref<>>& objects_;
  std::unordered_map<ir::ValueId, ir::SourceId> sources_;  // of inputs
  pyapi::Ref<> made_;
  ir::ReachWalker walker_;
  uint32_t seen_ = 0;                      // instructions
  std::unordered_set<ir::ValueId> given_;  // to steps among them
};

// Sets the grad mode, and back.
class GradModeScope {
 public:
  explicit GradModeScope(bool enabled) : before_(torchapi::gradMode()) { torchapi::setGradMode(enabled); }
  ~GradModeScope() { torchapi::setGradMode(before_); }
  GradModeScope(const GradModeScope&) = delete;

 private:
  const bool before_;
};

}  // namespace kintsugi::driver
