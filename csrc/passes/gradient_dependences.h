// Which outputs and inputs of a segment each part of its backward belongs to.
//
// Eager mode has an autograd node for each operator; a native segment has one node for all of them. A program
// may ask for a part of the gradients only. Then eager mode runs some of its nodes, and checks the version
// counters of what these have saved. Which nodes run follows from the outputs that have a gradient and the
// inputs whose gradients are asked for. This pass computes these sets (ir/kept_form.h).
//
//   %2 = aten.sin.default %0     ; a, an output      its node saves %0; runs if a has a gradient
//   %3 = aten.cos.default %1     ; b, an output      its node saves %1; runs if b has a gradient
//
// `a.sum().backward()` after `%1.mul_(2)` is fine: the set of `checked` %1 is {b}, and only a has a gradient.
//
// Pure function, no GIL.
#pragma once

#include <optional>
#include <vector>

#include "ir/kept_form.h"
#include "passes/gradient_graph.h"

namespace kintsugi::passes {

struct DependenceInput {
  const GradientGraph& graph;
  const std::vector<uint32_t>& backward;       // the instructions that gradients of inputs need, in order
  const std::vector<bool>& isForward;          // by value
  const std::vector<bool>& isKept;             // by value
  const std::vector<ir::ValueId>& keptValues;  // by `form.kept`
};

// The input or output that a value is; nullopt: it is neither.
std::optional<ir::SegmentPlace> placeIn(const GradientGraph& graph, ir::ValueId value);

// Fills in which nodes eager mode has, in which order they run, and which outputs' gradients need each saved
// value. `follows`, `gets`, `kept` (except its sets) and `leaves` have to be filled in already.
void findDependences(const DependenceInput& input, ir::KeptForm& form);

}  // namespace kintsugi::passes
