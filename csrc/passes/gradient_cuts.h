// Where segments end so that autograd gives the gradients of parameters in groups.
//
// One node of autograd's stands for a segment, and gives all of its gradients when it is done.
// DistributedDataParallel sends gradients to other processes in buckets, while the rest is computed, and
// needs them earlier. So a segment ends where the parameters that are used from there on have as many bytes
// as a bucket: the backward goes through the segments from the last to the first, and the bucket of a segment
// is complete when that segment's node is.
//
//   linear(x, w1)  linear(h, w2) | linear(h, w3)  linear(h, w4)      limits of two matrices each
//
// A parameter counts where it is used first: its gradient is complete when that use has been differentiated.
// Pure function, linear in the size of the trace. No GIL.
#pragma once

#include <vector>

#include "ir/segments.h"

namespace kintsugi::passes {

// By instruction, those from `start` on: a segment that is open ends before it.
std::vector<bool> gradientCuts(const ir::Trace& trace, uint32_t start, ir::GradientLimits limits);

}  // namespace kintsugi::passes
