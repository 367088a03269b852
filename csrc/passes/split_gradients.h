// Cuts the joint graph of a segment into what runs forward and what runs backward, and chooses what is kept
// from one to the other.
//
// Idea: what the backward takes from the forward is kept or computed again. Values that operators of the
// backward take as whole tensors are kept; what kernels read is chosen by a minimum cut between what can't be
// computed again cheaply (inputs, results of calls and reductions) and the backward, weighed by bytes: never
// more than eager mode keeps. Views are never kept, but what they look at.
//
// Inputs and results of the segment are what others write to (`x.data.mul_(2)` is not even noticed). The
// backward reads them where eager mode's does, and computes nothing else of them again.
//
// Pure function, no GIL.
#pragma once

#include "ir/kept_form.h"
#include "passes/gradient_graph.h"

namespace kintsugi::passes {

struct TrainingSegments {
  ir::Trace forward;   // the inputs of the segment; gives the node's outputs, then what is kept
  ir::Trace backward;  // what is kept, then the gradients that arrive; gives those of inputs
  ir::Trace epilogue;  // inputs of the segment, then the node's outputs
  ir::KeptForm form;   // own values are counted behind the outputs of `forward`
  std::vector<ir::SegmentPlace> results;  // of the segment; kOwn: of the epilogue
  std::optional<bool> gradBefore;         // the grad mode that the segment has to start in
};

TrainingSegments splitGradients(const GradientGraph& graph);

}  // namespace kintsugi::passes
