// Writes of an FX graph to tensors that it has made itself. Nothing outside of the graph sees them. So such a
// graph can be run again, like one that writes nothing, and effects that do not read these tensors may be
// deferred behind it.
//
//   %1 = aten.conv2d.default ...           made by the graph
//   %2 = aten.relu_.default %1             a write to it: the graph still changes nothing
//   effect.setattr #0, "n", 1 deferrable   runs behind the graph, if it does not name %1
//
// A decision that waits may name the tensor, and so may its frames: no effect has been given the tensor, so
// where the graph is left there, it is made anew, as it is at that place. From then on it is not written to.
//
// A tensor is the graph's own if an operator made it that surely allocates, and so are views of it. If the
// result of an operator may share memory with several tensors, none of them counts as the graph's own.
//
// Owned by the pass that cuts segments (passes/segments.h); borrows the trace. No GIL. Linear in what is
// added, and in what the deferred instructions reach.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/reach.h"
#include "passes/segments.h"

namespace kintsugi::passes {

class FreshWrites {
 public:
  FreshWrites(const ir::Trace& trace, OperatorTraitsFn traits);

  // Does the operator write, but only to a tensor of the open segment that no deferred instruction names?
  bool isContainedWrite(const ir::Instruction& ins) const;
  // May the effect run behind the graph? False: it, or a frame that may be left at it, names a tensor that
  // the segment has written to. True: from now on these tensors are not written to.
  bool defer(const ir::Instruction& ins);
  // The same for a decision, which always may.
  void ask(const ir::Instruction& ins) { defer(ins); }
  void add(const ir::Instruction& ins);  // to the graph
  void stop() { ++stops_; }              // the graph hands out what it has, which is not written to any more
  void clear();                          // another segment begins

 private:
  ir::ValueId baseOfOperands(const ir::Instruction& ins);
  void setBase(const ir::Instruction& ins, ir::ValueId base);

  const ir::Trace& trace_;
  OperatorTraitsFn traits_;
  std::vector<ir::ValueId> base_;    // by value: the own tensor whose memory it is; ir::kNone: none
  std::vector<uint32_t> madeAfter_;  // by own tensor: so many stops
  std::vector<bool> shared_;         // by own tensor: it may have views that are not tracked
  std::vector<bool> named_;          // by own tensor: a deferred instruction names it
  std::vector<bool> written_;        // by own tensor
  std::optional<ir::ReachWalker> walker_;
  uint32_t stops_ = 0;
};

}  // namespace kintsugi::passes
