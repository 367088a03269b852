// Partitions the joint graph of a segment into a forward and a backward graph, and chooses which values are
// saved from one to the other (rematerialization).
//
// Idea: a value that the backward takes from the forward is saved or computed again. What operators of the
// backward take as whole tensors is saved. What kernels read is chosen by a minimum cut between values that
// are expensive to compute again (inputs, results of calls and reductions) and the backward, weighted by
// bytes; never more is saved than eager mode would. A view is never saved, but its base is.
//
// The program may write to inputs and results of the segment in between (autograd does not notice
// `x.data.mul_(2)`). The backward reads these where eager mode's backward reads them, and computes nothing
// else from them again.
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
  ir::KeptForm form;   // own values are counted after the outputs of `forward`
  std::vector<ir::SegmentPlace> results;  // of the segment; kOwn: of the epilogue
  std::optional<bool> gradBefore;         // the grad mode that the segment has to start in
};

TrainingSegments splitGradients(const GradientGraph& graph);

}  // namespace kintsugi::passes
