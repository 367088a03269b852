// Redirects reads of the backward graph, so that it sees the same contents of visible tensors as eager mode's
// backward. Visible tensors are the inputs and outputs of the segment: the program may write to them, or give
// them other memory, between forward and backward.
//
//   y = aten.linear.default(x, weight)       ; eager mode saves the objects x and weight
//   weight.data = other                      ; the program, between forward and backward
//   dx = aten.mm.default(dy, weight)         ; eager mode reads `other` here
//
// In the backward graph an input or output means the memory that it had in the forward. Where eager mode
// saves the tensor object, the memory that it has later counts. So the read of `weight` becomes a read of a
// placeholder, an input of the backward that stands for the tensor as it is by then (GradientGraph::now).
//
// Works on the graph while it is differentiated; borrows it. No GIL.
#pragma once

#include <vector>

#include "passes/gradient_graph.h"
#include "passes/kept_by_eager.h"

namespace kintsugi::passes {

class SavedReads {
 public:
  // `madeBy`: by value, the instruction of the segment that made it. `inputs`: the number of the segment's
  // own inputs, which come before the masks of dropout.
  SavedReads(GradientGraph& graph, const std::vector<uint32_t>& madeBy, size_t inputs)
      : graph_(graph), trace_(graph.trace), madeBy_(madeBy), inputs_(inputs) {}

  // Adds to GradientGraph::saved the visible tensors that eager mode's `node` saves of its operator.
  void note(const std::vector<KeptByEager>& kept, const SavedByEager& node);
  // Redirects the reads of one operator's derivative, which is the backward from its `first`-th instruction
  // on. False: it reads a visible tensor that eager mode does not save.
  bool redirectReads(const std::vector<KeptByEager>& kept, size_t first);
  // Redirects the leaves of taped calls to visible tensors.
  void redirectLeaves();

 private:
  bool isSeen(ir::ValueId value) const;
  ir::ValueId baseOf(ir::ValueId value, Sharing least) const;
  ir::ValueId nowOf(ir::ValueId base);
  ir::ValueId readOf(ir::ValueId value, const std::vector<KeptByEager>& kept);

  GradientGraph& graph_;
  ir::Trace& trace_;
  const std::vector<uint32_t>& madeBy_;
  size_t inputs_;
  bool ok_ = true;
};

}  // namespace kintsugi::passes
