// Is a tensor graph well formed? Checks what its passes and the code generator rely on
// (passes/tensor_graph.h):
//
//   order    arguments come before their users; inputs and outputs are nodes, every input is listed once
//   arity    each kind has the arguments that it takes, each result a call of the trace with so many results
//   types    elements and sizes of a node fit its operation's: pointwise ones broadcast, reductions leave
//            size 1, comparisons are bool, joins add up
//   memory   strides for each size; a view, or a part of a concatenation, lies within its base's memory;
//            a home is a later concatenation that has the part, or an input
//   writes   what is stored to an input is a leaf that nothing reads, computed for that place
//
// Sizes that vary are compared by what they were while recording. Linear in the size of the graph. No state,
// no GIL.
#pragma once

#include <string_view>
#include <vector>

#include "ir/verifier.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

// Empty: the graph is valid. `trace`: the segment that it was made from.
std::vector<ir::Problem> verify(const TensorGraph& graph, const ir::Trace& trace);

// Where verification is on: a graph that is not valid after `pass` is a failed check.
void checkGraph(const TensorGraph& graph, const ir::Trace& trace, std::string_view pass);

}  // namespace kintsugi::passes
