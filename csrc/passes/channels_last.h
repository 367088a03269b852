// Convolutions and what lies between them with the channels last, where that pays.
//
// The library computes convolutions with the channels last in memory, and moves what lies otherwise before
// and behind each of them. Here tensors are moved where a chain of such operators begins and ends, and all
// between keep to that layout: other strides in the metadata of values, and `aten.clone`s where one layout
// meets the other. Whoever looks at memory (views, calls of operators not in the table) and the outside get
// the layout of eager mode.
//
// What is won is set against what is moved, by rules of thumb that were measured (see
// docs/internals/native.md); if it is not more, nothing changes. Works on segments behind foldConvolutions(),
// whose results lie so in any case. Pure function, no GIL.
#pragma once

#include <vector>

#include "ir/trace.h"

namespace kintsugi::passes {

// `seen`: the metadata with the sizes that were seen; gets the same new rows. False: it does not pay, or
// can't be done, and the segment is as good as lost.
bool putChannelsLast(ir::Trace& segment);

}  // namespace kintsugi::passes
