// Which tensors of a trace the program gets to see, and where: cutting into segments asks, as autograd has
// one node for all of a segment (passes/segments.h).
//
// Idea: a tensor v that the program sees has to be another node's than what is made of it, w: v's hooks and
// its own gradient concern all that was made of it. What steps are given is seen for good. What frames hold
// is seen only if the run is left there. Where that is inside the segment, before any of its tensors was
// shown, the run computes all of the segment again with autograd's own nodes (Run::leaveSegment). So w may
// be in v's segment as long as no frame behind its end, or behind a step in it that is given one of its
// tensors, holds v. Whether that is so is known when the segment ends (SeenCuts).
//
// Owned by who cuts; no GIL. Linear in the size of the trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::passes {

class SeenValues {
 public:
  explicit SeenValues(const ir::Trace& trace);

  bool isSeen(ir::ValueId value) const { return isShown(value) || lastFrame(value).has_value(); }
  // By what steps are given: results, what effects store.
  bool isShown(ir::ValueId value) const { return shown_[writtenTo_[value]]; }
  // The last instruction at which frames hold it that may be left there.
  std::optional<uint32_t> lastFrame(ir::ValueId value) const;
  // What it was before operators wrote to it in place: one object is seen, or is not.
  ir::ValueId origin(ir::ValueId value) const { return writtenTo_[value]; }

 private:
  std::vector<bool> shown_;             // by origin
  std::vector<uint32_t> lastFrame_;     // likewise; ir::kNone: none
  std::vector<ir::ValueId> writtenTo_;  // by value
};

// Does an operator write to its first argument?
bool writesToFirst(const ir::Trace& trace, const ir::Instruction& ins);

// Instructions of the open segment that are made of what frames hold, and where it has to be cut for that.
class SeenCuts {
 public:
  // The instruction `at` makes something of a tensor that the instruction `maker` has made, and that frames
  // hold at `lastFrame` for the last time.
  void add(uint32_t maker, uint32_t at, uint32_t lastFrame) { pairs_.push_back({maker, at, lastFrame}); }
  // A step between the instructions of the segment that is given one of its tensors.
  void addShowing(uint32_t at) { showing_.push_back(at); }
  // The segment ends with the instruction `last`. Adds to `cuts` before which instructions it has to end
  // instead. Another segment begins.
  void close(uint32_t last, std::vector<uint32_t>& cuts);

 private:
  struct Pair {
    uint32_t maker = 0, at = 0, lastFrame = 0;
  };
  std::vector<Pair> pairs_;
  std::vector<uint32_t> showing_;
};

}  // namespace kintsugi::passes
