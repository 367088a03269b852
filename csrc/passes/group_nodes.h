// Fusion: which core operations of a tensor graph become one kernel.
//
// Idea: nodes are visited in order. A node joins the groups of its arguments, and merges them, if all iterate
// over the same elements (a reduction and its users iterate over rows) and if everything else that they need
// can be computed before. Levels guarantee the latter: a group's level is above the levels of all groups
// whose results it takes, so groups never depend on each other in a cycle. A group may be raised to a higher
// level as long as no group at or below that level has taken its results. Nearly linear in the size of the
// graph. Pure functions, no GIL.
#pragma once

#include <vector>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

constexpr uint32_t kNoGroup = ir::kNone;

struct Group {
  std::vector<NodeId> members;  // in order; none: it has become part of another one
  std::vector<Size> sizes;      // what it runs over
  uint32_t reduced = 0;         // how many dimensions it reduces; 0: nothing
  uint32_t trailing = 0;        // how many dimensions stay after those
  bool parts = false;           // some member is a part, which rows do not have
  bool product = false;         // one member is a product
  bool alone = false;           // attention, which nothing joins
  uint32_t level = 0;
  uint32_t firstUser = ir::kNone;  // the lowest level at which something outside takes what it makes
};

struct Grouping {
  std::vector<uint32_t> groupOf;  // by node; kNoGroup: it is not computed by a kernel
  std::vector<Group> groups;
};

Grouping groupNodes(const TensorGraph& graph);

// Can the two be one kernel, as far as what they run over is concerned?
bool mayMerge(const TensorGraph& graph, const Group& a, const Group& b);
// `from` becomes part of `into`, at a level that is given.
void mergeGroups(Grouping& grouping, uint32_t into, uint32_t from);

// What has to be in memory: what another group, a call or the outside uses, through views or not.
std::vector<bool> storedNodes(const TensorGraph& graph, const Grouping& grouping);

// For logs, a line a group: `0: over [64,16] reduces 1 level 2: %3 %4`.
std::string print(const Grouping& grouping);

// The strides of a node within a space that it is broadcast to.
std::vector<Size> stridesIn(const Node& node, size_t rank);

}  // namespace kintsugi::passes
