// Which operators of a trace give as many tensors as the contents of other tensors say.
//
//   %1 = aten.nonzero.default %0          its sizes follow from what is in %0
//   %2, %3 = aten.unbind.int %1, 0        two rows when it was recorded: this one is found
//
// The trace holds as many results as there were. Instructions ask in each run and leave the trace where there
// is another number; a graph can't, so it ends in front of such an operator. Where sizes follow from those of
// a graph's inputs, whoever compiles the graph asks (python/kintsugi/backends/fx.py).
//
// Threads: any. Linear in the size of the trace.
#pragma once

#include <vector>

#include "ir/trace.h"
#include "passes/segments.h"

namespace kintsugi::passes {

// By instruction.
std::vector<bool> findCountsOfData(const ir::Trace& trace, OperatorTraitsFn traits);

}  // namespace kintsugi::passes
