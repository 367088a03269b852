// Layout pass: runs chains of convolutions with the channels last in memory, where that is faster.
//
//   %2 = conv2d(%0, %w)                   %a = clone(%0, channels last)     the chain begins: one move
//   %3 = relu(%2)                --->     %2 = conv2d(%a, %w)               strides of the channels last
//   %4 = conv2d(%3, %v)                   %3 = relu(%2)    %4 = conv2d(%3, %v)
//   return %4                             %b = clone(%4, contiguous)        return %b
//
// The library computes convolutions with the channels last, and moves tensors with another layout before and
// after each convolution. This pass moves them only where a chain of such operators begins and ends. In
// between it changes the strides in the metadata of values. Where an operator of the chain takes a tensor
// with the other layout, or the other way round, it adds an `aten.clone`. Results of the segment, views, and
// calls of operators that are not in the table keep the layout of eager mode.
//
// The gain is weighed against the cost of the moves (Target::ChannelsLast, Target::Costs); without a gain
// nothing changes. Works on segments after foldConvolutions(), whose results have the channels last in any
// case. Pure function, no GIL.
#pragma once

#include <vector>

#include "ir/trace.h"

namespace kintsugi::passes {

// Returns true if the segment now runs with the channels last. False: the change does not pay or can't be
// made. The segment may have been changed in part by then, so the caller gives a copy and throws it away.
bool putChannelsLast(ir::Trace& segment);

}  // namespace kintsugi::passes
