// The flags of a node of the tensor graph with their names in its text form (passes/graph_text.h). Constant
// data.
#pragma once

#include <string_view>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

struct NodeFlag {
  std::string_view name;
  bool Node::*flag;
};
// `stacked` and `byRows` are part of the name of the operation instead: `join.stacked`, `product.rows`.
inline constexpr NodeFlag kNodeFlags[] = {
    {"fresh", &Node::fresh},   {"unaliased", &Node::unaliased},   {"checked", &Node::checked},
    {"open", &Node::open},     {"metaonly", &Node::metadataOnly}, {"product", &Node::product},
    {"packed", &Node::packed}, {"write", &Node::write},           {"mustrun", &Node::mustRun},
};

}  // namespace kintsugi::passes
