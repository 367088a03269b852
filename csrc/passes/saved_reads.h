// Redirects reads of the backward graph, so that it sees the same contents of visible tensors as eager mode's
// backward. Visible tensors are the inputs and outputs of the segment: the program may write to them, or give
// them other memory, between forward and backward.
//
// Idea: in the backward graph an input or output means the memory that it had in the forward. Where eager
// mode saves the tensor itself, later memory counts (`weight.data = other`): the read goes to another input
// that stands for the tensor as it is then (GradientGraph::now).
//
// Works on the graph while it is differentiated; borrows it. No GIL.
#pragma once

#include <vector>

#include "passes/gradient_graph.h"
#include "passes/kept_by_eager.h"

namespace kintsugi::passes {

class SavedReads {
 public:
  // `madeBy`: by value, the instruction of the segment; `inputs`: how many inputs are no masks.
  SavedReads(GradientGraph& graph, const std::vector<uint32_t>& madeBy, size_t inputs)
      : graph_(graph), trace_(graph.trace), madeBy_(madeBy), inputs_(inputs) {}

  void note(const std::vector<KeptByEager>& kept, const SavedByEager& node);
  // Redirects the reads of one operator's derivative: the instructions of the backward from the `first`-th
  // on. False: they read something that eager mode does not save.
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
