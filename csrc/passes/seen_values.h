// Tensors of a trace that the program can see, and where. Segments end because of them (passes/segments.h).
//
//   %1 = aten.sin.default %0      ; y, which the program keeps and prints
//   effect.setattr #0, "y", %1    ; a step that is given y: y is *shown*
//   %2 = aten.mul.Tensor %1, 2    ; z, made of y
//
// Autograd has one node for a whole segment. If y and z were made by the same node, a hook on y, or
// `torch.autograd.grad(z, y)`, would not find the part of the graph between them. So a segment ends after a
// tensor that the program sees and before what is made of it.
//
// A tensor that a step is given is seen in any case. A tensor that only frames hold is seen if the run leaves
// the trace while they hold it. If that happens inside the segment before any of its tensors was shown, the
// run computes all of the segment again by autograd's own nodes (Run::leaveSegment). So z may be in the
// segment of y if no frame holds y after the end of the segment, nor after a step in it that is given one of
// its tensors. This is known when the segment ends (SeenCuts).
//
// Owned by the pass that cuts segments; no GIL. Linear in the size of the trace.
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
  // A step is given the tensor: it is returned, stored by an effect, or an argument of a call.
  bool isShown(ir::ValueId value) const { return shown_[writtenTo_[value]]; }
  // The last instruction where the run may leave the trace and a frame holds the tensor; nullopt: none.
  std::optional<uint32_t> lastFrame(ir::ValueId value) const;
  // The value that it was before operators wrote to it in place. All these values are one tensor object.
  ir::ValueId origin(ir::ValueId value) const { return writtenTo_[value]; }

 private:
  std::vector<bool> shown_;             // by origin
  std::vector<uint32_t> lastFrame_;     // likewise; ir::kNone: none
  std::vector<ir::ValueId> writtenTo_;  // by value
};

// Does an operator write to its first argument?
bool writesToFirst(const ir::Trace& trace, const ir::Instruction& ins);

// Collects, for the open segment, the instructions whose operands frames hold, and finds where the segment
// has to be cut because of them.
class SeenCuts {
 public:
  // The instruction `at` reads a tensor that the instruction `maker` made. `lastFrame` is the last
  // instruction at which a frame holds that tensor.
  void add(uint32_t maker, uint32_t at, uint32_t lastFrame) { pairs_.push_back({maker, at, lastFrame}); }
  // The step `at`, between the instructions of the segment, is given one of the segment's tensors.
  void addShowing(uint32_t at) { showing_.push_back(at); }
  // The open segment ends with the instruction `last`. Adds to `cuts` the instructions in front of which it
  // has to be cut. Then starts with an empty segment.
  void close(uint32_t last, std::vector<uint32_t>& cuts);

 private:
  struct Pair {
    uint32_t maker = 0, at = 0, lastFrame = 0;
  };
  std::vector<Pair> pairs_;
  std::vector<uint32_t> showing_;
};

}  // namespace kintsugi::passes
