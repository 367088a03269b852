// What a trace takes for granted of sizes that vary, and whether a graph of an FX backend can, too.
//
//   %1 = size %0, 0 : int                 of an input: whoever compiles the graph knows it as a symbol
//   %2 = num.gt %1, 1 : bool
//   guard.true %2 snap !1                 decided when the graph is compiled, by symbols: part of the graph
//   %3 = aten.nonzero.default %0          its sizes follow from what is in %0
//   %4, %5 = aten.unbind.int %3, 0        two rows when it was recorded: nobody knows before the run
//
// Floats that are computed of sizes, and strides that fake tensors may not have, are no decision by symbols.
// Instructions ask in each run and leave the trace where it is otherwise. A graph asks when it is compiled,
// of symbols that stand for the sizes of its inputs (python/kintsugi/backends/checks.py). Where data decides,
// it can't, and ends in front of the instruction.
//
// Threads: any. Linear in the size of the trace.
#pragma once

#include <vector>

#include "ir/trace.h"
#include "passes/segments.h"

namespace kintsugi::passes {

// By instruction.
struct SizeDecisions {
  std::vector<bool> bySymbols;  // guards that follow from sizes of tensors alone
  std::vector<bool> byData;     // operators that give as many tensors as data says
};
SizeDecisions findSizeDecisions(const ir::Trace& trace, OperatorTraitsFn traits);

}  // namespace kintsugi::passes
