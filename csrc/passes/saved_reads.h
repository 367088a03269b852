// Makes the backward read of the tensors that others see (inputs and outputs of the segment) what eager
// mode's nodes read, in the memory in which these read it, and notes what they keep.
//
// Idea: an input or output itself in the backward means the memory that it had in the forward. Where eager
// mode keeps the tensor itself, a stand-in takes its place (GradientGraph::now).
//
// Works on the graph while it is differentiated. No GIL.
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
  // Instructions of the backward, from the `first`-th on, are those of one operator. False: they read
  // something that eager mode does not keep.
  bool redirectReads(const std::vector<KeptByEager>& kept, size_t first);
  // Leaves of tapes that stand for a tensor that is seen.
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
