// Leaves out casts to a wider type and back.
//
//   %1 = cast(%0) f32            --->      %1 = cast(%0) f32
//   %2 = cast(%1) bf16                     %2 = cast(%0) bf16
//
// %0 is bf16 here, so %2 is a copy of it, which `drop-copies` removes where nobody can tell. %1 goes with
// `drop-unused` if it has no other user. Autocast and norms that compute in f32 leave such pairs behind.
//
// Assumes nothing of the graph, and changes only the arguments of casts. Pure function, no GIL.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

void dropRoundTrips(TensorGraph& graph);

}  // namespace kintsugi::passes
