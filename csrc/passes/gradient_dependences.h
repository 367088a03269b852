// Eager mode has a node for each operator, a native segment one for all of them. Which of eager mode's nodes
// would run, what they look at, and which inputs get a gradient follows from which outputs have one and which
// gradients are asked for: here, as sets (ir/kept_form.h).
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
  const std::vector<uint32_t>& backward;       // what leads to gradients, in order
  const std::vector<bool>& isForward;          // by value
  const std::vector<bool>& isKept;             // by value
  const std::vector<ir::ValueId>& keptValues;  // by `form.kept`
};

// Where a value is seen from outside; nothing: nowhere.
std::optional<ir::SegmentPlace> placeIn(const GradientGraph& graph, ir::ValueId value);

// Fills what nodes of eager mode's there are, in which order they run, and what kept values are for; the
// rest of `form` is there.
void findDependences(const DependenceInput& input, ir::KeptForm& form);

}  // namespace kintsugi::passes
