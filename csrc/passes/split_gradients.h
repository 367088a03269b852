// Partitions the joint graph of a segment into a forward and a backward graph, and chooses which values are
// saved from one to the other (rematerialization).
//
//   forward    %1 = matmul(%0, %w)     %2 = mul(%1, 2)     %3 = tanh(%2)
//   backward   needs %0, %w (gradients of matmul) and %3 (gradient of tanh)
//
// Each value that the backward needs is either saved or computed again. A value that an operator of the
// backward takes as a whole tensor (matmul's %0 and %w) is saved. For values that fused kernels read, a
// minimum cut decides, weighted by bytes: it separates values that are expensive to compute again (inputs,
// results of calls and of reductions) from the backward. Here %3 can be computed again from %1, which has as
// many bytes, so one tensor is saved either way. Never are more bytes saved than in eager mode. A view is
// never saved, but its base is.
//
// The program may write to inputs and results of the segment between forward and backward (autograd does not
// notice `x.data.mul_(2)`). The backward reads such a tensor only where eager mode's backward reads it, and
// computes nothing else from it again.
//
// Pure function, no GIL.
#pragma once

#include <string>

#include "ir/kept_form.h"
#include "passes/gradient_graph.h"

namespace kintsugi::passes {

struct TrainingSegments {
  ir::Trace forward;   // from the inputs of the segment to the node's outputs and the saved values of its own
  ir::Trace backward;  // from the saved values and the gradients of outputs to the gradients of inputs
  ir::Trace epilogue;  // from the inputs of the segment and the node's outputs to the other results
  ir::KeptForm form;   // a place kOwn with index k is the k-th result of `forward` after the node's outputs
  std::vector<ir::SegmentPlace> results;  // of the segment; kOwn with index k: the epilogue's k-th
  std::optional<bool> gradBefore;         // the grad mode that the segment has to start in
};

std::string print(const TrainingSegments& parts);  // for logs

TrainingSegments splitGradients(const GradientGraph& graph);

}  // namespace kintsugi::passes
