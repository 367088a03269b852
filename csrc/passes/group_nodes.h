// Which core operations of a tensor graph are one kernel.
//
// Idea: nodes are taken in order. A node joins the groups of its arguments, and makes them one, where all run
// over the same elements (a reduction and what is made of it run over rows) and where everything else that
// they need can be there before. The latter is told by levels: a group's level is above those of all that it
// takes from outside, so groups never wait for each other in a circle. A group may be moved to a higher level
// as long as nothing at or below it has taken what the group makes. Nearly linear in the size of the graph.
// Pure functions, no GIL.
#pragma once

#include <vector>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

constexpr uint32_t kNoGroup = ir::kNone;

struct Group {
  std::vector<NodeId> members;  // in order; none: it has become part of another one
  std::vector<Size> sizes;      // what it runs over
  uint32_t reduced = 0;         // how many dimensions it reduces; 0: nothing
  uint32_t behind = 0;          // how many dimensions stay behind those
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

// The strides of a node within a space that it is broadcast to.
std::vector<Size> stridesIn(const Node& node, size_t rank);

}  // namespace kintsugi::passes
