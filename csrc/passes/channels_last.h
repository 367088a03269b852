// Layout pass: runs chains of convolutions with the channels last in memory, where that is faster.
//
// The library computes convolutions with the channels last in memory, and moves what lies otherwise before
// and after each of them. Here tensors are moved where a chain of such operators begins and ends, and all
// between keep to that layout: other strides in the metadata of values, and `aten.clone`s where one layout
// meets the other. Whoever looks at memory (views, calls of operators not in the table) and the outside get
// the layout of eager mode.
//
// The gain is weighed against the cost of the moves, with constants that were measured (see
// docs/internals/native.md); without a gain nothing changes. Works on segments after foldConvolutions(),
// whose results lie so in any case. Pure function, no GIL.
#pragma once

#include <vector>

#include "ir/trace.h"

namespace kintsugi::passes {

// Returns true if the segment now runs with the channels last. False: the change does not pay or can't be
// made. The segment may have been changed in part by then, so the caller gives a copy and throws it away.
bool putChannelsLast(ir::Trace& segment);

}  // namespace kintsugi::passes
