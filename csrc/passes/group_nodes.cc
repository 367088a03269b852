#include "passes/group_nodes.h"

#include <algorithm>

#include "passes/simplify_graph.h"
#include "passes/size_text.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

// Values of a larger group do not stay in registers, and the time to compile it grows faster than its size. A
// smaller bound cuts long chains, and each cut stores a tensor and loads it again.
constexpr size_t kMostMembers = 96;

std::vector<Size> rowSizes(std::vector<Size> sizes, size_t reduced, size_t trailing) {
  const auto end = sizes.end() - static_cast<std::ptrdiff_t>(trailing);
  std::fill(end - static_cast<std::ptrdiff_t>(reduced), end, Size(1));
  return sizes;
}
// Is a row one run with one stride?
bool rowsJoin(const Node& node, const std::vector<Size>& space, size_t reduced, size_t trailing) {
  const std::vector<Size> strides = stridesIn(node, space.size());
  Size step = 0;
  bool first = true;
  const size_t end = space.size() - trailing;
  for (size_t d = end; d-- > end - reduced;) {
    if (space[d] == 1) {
      continue;
    }
    if (!first && strides[d] != step) {
      return false;
    }
    step = strides[d] * space[d];
    first = false;
  }
  return true;
}

bool argumentsJoin(const TensorGraph& graph, const Node& node, const Group& group) {
  return std::all_of(node.args.begin(), node.args.end(),
                     [&](NodeId arg) {
                       const Node& from = graph.nodes[arg];
                       return from.kind == NodeKind::kConst ||
                              rowsJoin(from, group.sizes, group.reduced, group.trailing);
                     }) &&
         rowsJoin(node, group.sizes, group.reduced, group.trailing);
}

bool allRowsJoin(const TensorGraph& graph, const Group& group, uint32_t reduced, uint32_t trailing) {
  Group wanted;
  wanted.sizes = group.sizes;
  wanted.reduced = reduced;
  wanted.trailing = trailing;
  return reduced < 2 || std::all_of(group.members.begin(), group.members.end(),
                                    [&](NodeId id) { return argumentsJoin(graph, graph.nodes[id], wanted); });
}

// A product is computed in strips of its columns: there are no rows, and nothing else to reduce.
bool mayFollowProduct(const Group& group) { return !group.product && group.reduced == 0 && !group.parts; }

class Grouper {
 public:
  explicit Grouper(const TensorGraph& graph)
      : graph_(graph),
        made_{std::vector<uint32_t>(graph.nodes.size(), kNoGroup), {}},
        callLevel_(graph.nodes.size(), 0) {}
  Grouper(const Grouper&) = delete;

  void run() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (isCore(node)) {
        place(id);
      } else if (node.kind == NodeKind::kCall || node.kind == NodeKind::kJoin) {
        for (const NodeId arg : node.args) {
          callLevel_[id] = std::max(callLevel_[id], levelOf(arg) + 1);
        }
        noteUser(node, callLevel_[id], kNoGroup);
      }
    }
  }

  Grouping take() { return std::move(made_); }

 private:
  uint32_t levelOf(NodeId id) const {
    const Node& node = graph_.nodes[id];
    switch (node.kind) {
      case NodeKind::kPoint:
      case NodeKind::kReduce:
      case NodeKind::kProduct:
      case NodeKind::kAttention:
        KINTSUGI_CHECK(groupOf_[id] < groups_.size(), "node ", id, " is read before it has a group");
        return groups_[groupOf_[id]].level;
      case NodeKind::kView:
      case NodeKind::kResult:
        return levelOf(node.args[0]);
      case NodeKind::kJoin:
      case NodeKind::kCall:
        return callLevel_[id];
      case NodeKind::kInput:
      case NodeKind::kConst:
        break;
    }
    return 0;
  }

  // Something at `level` takes what groups other than `own` make: those can't be moved after it any more.
  void noteUser(const Node& node, uint32_t level, uint32_t own) {
    for (const NodeId arg : node.args) {
      const uint32_t group = groupOf_[memoryOf(graph_, arg).base];
      if (group != kNoGroup && group != own) {
        groups_[group].firstUser = std::min(groups_[group].firstUser, level);
      }
    }
  }

  // The level of a group that holds `node` and the groups `joined`.
  uint32_t levelWith(const Node& node, const std::vector<uint32_t>& joined) const {
    uint32_t level = 0;
    for (const NodeId arg : node.args) {
      const uint32_t group = groupOf_[arg];
      if (group != kNoGroup && std::find(joined.begin(), joined.end(), group) != joined.end()) {
        level = std::max(level, groups_[group].level);
      } else if (graph_.nodes[arg].kind != NodeKind::kConst) {
        level = std::max(level, levelOf(arg) + 1);
      }
    }
    return level;
  }

  // The groups of the arguments that can be one with the node: at a level that each of them can be moved to.
  std::vector<uint32_t> choose(const Node& node) const {
    std::vector<uint32_t> joined;
    for (const NodeId arg : node.args) {
      const uint32_t group = groupOf_[arg];
      if (group != kNoGroup && std::find(joined.begin(), joined.end(), group) == joined.end() &&
          !looksInto(node, group) && mayJoin(node, groups_[group]) &&
          (joined.empty() || mayMerge(graph_, groups_[joined.front()], groups_[group]))) {
        joined.push_back(group);
      }
    }
    while (!joined.empty()) {
      const uint32_t level = levelWith(node, joined);
      const auto stuck = std::find_if(joined.begin(), joined.end(), [&](uint32_t group) {
        return groups_[group].level < level && groups_[group].firstUser <= level;
      });
      if (stuck == joined.end()) {
        break;
      }
      joined.erase(stuck);
    }
    return joined;
  }

  // Through a view, at elements that the group may not have computed yet.
  bool looksInto(const Node& node, uint32_t group) const {
    return std::any_of(node.args.begin(), node.args.end(), [&](NodeId arg) {
      return graph_.nodes[arg].kind == NodeKind::kView && groupOf_[memoryOf(graph_, arg).base] == group;
    });
  }

  void place(NodeId id) {
    const Node& node = graph_.nodes[id];
    const std::vector<uint32_t> joined = node.kind == NodeKind::kProduct || node.kind == NodeKind::kAttention
                                             ? std::vector<uint32_t>()
                                             : choose(node);
    const uint32_t level = levelWith(node, joined);
    uint32_t at = static_cast<uint32_t>(groups_.size());
    if (joined.empty()) {
      Group group;
      group.sizes = node.kind == NodeKind::kReduce ? graph_.nodes[node.args[0]].sizes : node.sizes;
      groups_.push_back(std::move(group));
    } else {
      at = joined.front();
      for (size_t k = 1; k < joined.size(); ++k) {
        mergeGroups(made_, at, joined[k]);
      }
    }
    Group& group = groups_[at];
    group.level = level;
    group.members.push_back(id);
    if (node.kind == NodeKind::kReduce) {
      group.reduced = node.reduced;
      group.trailing = node.trailing;
    }
    group.parts = group.parts || !node.bounds.empty();
    group.product = group.product || node.kind == NodeKind::kProduct;
    group.alone = node.kind == NodeKind::kAttention;
    groupOf_[id] = at;
    noteUser(node, level, at);
  }

  bool mayJoin(const Node& node, const Group& group) const {
    const bool part = group.parts && node.kind == NodeKind::kReduce;
    if (group.alone || (group.product && (node.kind == NodeKind::kReduce || !node.bounds.empty()))) {
      return false;
    }
    if (group.members.size() >= kMostMembers || part || (group.reduced != 0 && !node.bounds.empty())) {
      return false;
    }
    if (node.kind == NodeKind::kReduce) {
      const bool sameRows =
          group.reduced == 0 || (group.reduced == node.reduced && group.trailing == node.trailing);
      return sameRows && graph_.nodes[node.args[0]].sizes == group.sizes &&
             (group.reduced != 0 || allRowsJoin(graph_, group, node.reduced, node.trailing));
    }
    const bool full = node.sizes == group.sizes;
    const bool row = group.reduced != 0 && node.sizes == rowSizes(group.sizes, group.reduced, group.trailing);
    return (full || row) && (group.reduced < 2 || argumentsJoin(graph_, node, group));
  }

  const TensorGraph& graph_;
  Grouping made_;
  std::vector<uint32_t>& groupOf_ = made_.groupOf;
  std::vector<Group>& groups_ = made_.groups;
  std::vector<uint32_t> callLevel_;  // of calls and joins
};
}  // namespace

// The strides of a node within a space that it is broadcast to.
std::vector<Size> stridesIn(const Node& node, size_t rank) {
  std::vector<Size> strides(rank, Size(0));
  const size_t shift = rank - node.sizes.size();
  for (size_t d = 0; d < node.sizes.size(); ++d) {
    strides[shift + d] = node.sizes[d] == 1 ? Size(0) : node.strides[d];
  }
  return strides;
}
bool mayMerge(const TensorGraph& graph, const Group& a, const Group& b) {
  const Group& rows = a.reduced != 0 ? a : b;
  const bool sameRows =
      a.reduced == 0 || b.reduced == 0 || (a.reduced == b.reduced && a.trailing == b.trailing);
  const bool noParts = rows.reduced == 0 || !(a.parts || b.parts);
  if ((a.product && !mayFollowProduct(b)) || (b.product && !mayFollowProduct(a))) {
    return false;
  }
  return a.sizes == b.sizes && sameRows && noParts && a.members.size() + b.members.size() < kMostMembers &&
         allRowsJoin(graph, a, rows.reduced, rows.trailing) &&
         allRowsJoin(graph, b, rows.reduced, rows.trailing);
}

void mergeGroups(Grouping& grouping, uint32_t into, uint32_t from) {
  Group& to = grouping.groups[into];
  Group& gone = grouping.groups[from];
  for (const NodeId id : gone.members) {
    grouping.groupOf[id] = into;
  }
  std::vector<NodeId> members;
  std::merge(to.members.begin(), to.members.end(), gone.members.begin(), gone.members.end(),
             std::back_inserter(members));
  to.members = std::move(members);
  to.trailing = to.reduced != 0 ? to.trailing : gone.trailing;
  to.reduced = std::max(to.reduced, gone.reduced);
  to.parts = to.parts || gone.parts;
  to.product = to.product || gone.product;
  to.firstUser = std::min(to.firstUser, gone.firstUser);
  gone.members.clear();
}

std::vector<bool> storedNodes(const TensorGraph& graph, const Grouping& grouping) {
  std::vector<bool> stored = escapingNodes(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    for (const NodeId arg : graph.nodes[id].args) {
      if (!isCore(graph.nodes[id]) || grouping.groupOf[arg] != grouping.groupOf[id]) {
        stored[memoryOf(graph, arg).base] = true;
      }
    }
  }
  return stored;
}

Grouping groupNodes(const TensorGraph& graph) {
  Grouper grouper(graph);
  grouper.run();
  return grouper.take();
}

std::string print(const Grouping& grouping) {
  std::string out;
  for (size_t at = 0; at < grouping.groups.size(); ++at) {
    const Group& group = grouping.groups[at];
    if (group.members.empty()) continue;
    out += std::to_string(at) + ": over ";
    appendSizes(out, group.sizes);
    if (group.reduced != 0) out += " reduces " + std::to_string(group.reduced);
    if (group.trailing != 0) out += " before " + std::to_string(group.trailing);
    out += " level " + std::to_string(group.level) + ":";
    for (const NodeId member : group.members) out += " %" + std::to_string(member);
    out += "\n";
  }
  return out;
}

}  // namespace kintsugi::passes
