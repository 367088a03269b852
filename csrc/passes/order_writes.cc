#include "passes/order_writes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "passes/simplify_graph.h"

namespace kintsugi::passes {

namespace {

class WriteOrder {
 public:
  WriteOrder(const TensorGraph& graph, Grouping& grouping) : graph_(graph), grouping_(grouping) {
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      if (graph.nodes[id].write) {
        writes_.push_back(id);
      }
    }
  }

  std::vector<uint32_t> run() {
    if (writes_.empty()) {
      return {};
    }
    findUsers();
    findLateable();
    for (const NodeId id : writes_) {
      if (isDirect(id)) {
        direct_.push_back(id);
      }
    }
    std::vector<uint32_t> order;
    while (!sortLate(order)) {
      direct_.pop_back();
    }
    for (const NodeId id : writes_) {
      if (std::find(direct_.begin(), direct_.end(), id) == direct_.end()) {
        order.push_back(alone(id));
      }
    }
    return order;
  }

 private:
  uint32_t groupOf(NodeId id) const { return grouping_.groupOf[id]; }

  // Finds the users of groups' results, and the readers of inputs' memory.
  void findUsers() {
    const std::vector<bool> escapes = escapingNodes(graph_);
    const size_t count = grouping_.groups.size();
    users_.resize(count);
    readers_.resize(graph_.nodes.size());
    needed_.assign(count, false);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (node.kind == NodeKind::kView && !escapes[id]) {
        continue;  // looked through
      }
      for (const NodeId arg : node.args) {
        const NodeId base = memoryOf(graph_, arg).base;
        if (graph_.nodes[base].kind == NodeKind::kInput && isCore(node)) {
          readers_[base].insert(groupOf(id));
        }
        const uint32_t from = groupOf(base);
        if (from == kNoGroup || from == groupOf(id)) {
          continue;
        }
        if (isCore(node)) {
          users_[from].insert(groupOf(id));
        } else {
          needed_[from] = true;
        }
      }
      if (node.home != ir::kNone && !node.write && groupOf(id) != kNoGroup) {
        needed_[groupOf(id)] = true;  // a part of a concatenation
      }
    }
  }

  // Can the group run after the first store? It and all its users must not be able to fail.
  void findLateable() {
    lateable_.assign(grouping_.groups.size(), true);
    for (uint32_t at = 0; at < lateable_.size(); ++at) {
      const std::vector<NodeId>& members = grouping_.groups[at].members;
      lateable_[at] = !needed_[at] && std::none_of(members.begin(), members.end(), [&](NodeId id) {
        return graph_.nodes[id].kind == NodeKind::kPoint && graph_.nodes[id].op == Core::kTake;
      });
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t at = 0; at < lateable_.size(); ++at) {
        const bool stays = lateable_[at] && std::all_of(users_[at].begin(), users_[at].end(),
                                                        [&](uint32_t user) { return lateable_[user]; });
        changed = changed || stays != lateable_[at];
        lateable_[at] = stays;
      }
    }
  }

  bool isDirect(NodeId id) const {
    const Node& write = graph_.nodes[id];
    const Group& group = grouping_.groups[groupOf(id)];
    const bool only = std::count_if(writes_.begin(), writes_.end(), [&](NodeId other) {
                        return graph_.nodes[other].home == write.home;
                      }) == 1;
    if (!lateable_[groupOf(id)] || !only || group.reduced != 0 || group.alone) {
      return false;
    }
    for (const NodeId member : group.members) {
      for (const NodeId arg : graph_.nodes[member].args) {
        if (graph_.nodes[arg].kind != NodeKind::kConst && memoryOf(graph_, arg).base == write.home &&
            !isSamePlace(write, group, member, arg)) {
          return false;
        }
      }
    }
    return true;
  }

  // Does a member read just the element that is stored next?
  bool isSamePlace(const Node& write, const Group& group, NodeId member, NodeId arg) const {
    const Node& from = graph_.nodes[arg];
    const Node& node = graph_.nodes[member];
    return !group.product && node.kind == NodeKind::kPoint && node.bounds.empty() &&
           write.sizes == group.sizes && from.sizes == group.sizes && from.strides == write.strides &&
           memoryOf(graph_, arg).offset == write.offset && from.elem == write.elem &&
           write.strides == contiguousStrides(write.sizes);
  }

  // Groups that make direct stores and all that uses what they make, in an order in which each follows
  // what it uses and before its memory is overwritten. False: there is none.
  bool sortLate(std::vector<uint32_t>& order) const {
    std::set<uint32_t> late;
    std::vector<uint32_t> work;
    for (const NodeId id : direct_) {
      work.push_back(groupOf(id));
    }
    while (!work.empty()) {
      const uint32_t at = work.back();
      work.pop_back();
      if (late.insert(at).second) {
        work.insert(work.end(), users_[at].begin(), users_[at].end());
      }
    }
    std::set<std::pair<uint32_t, uint32_t>> edges;
    for (const uint32_t from : late) {
      for (const uint32_t to : users_[from]) {
        edges.insert({from, to});
      }
    }
    for (const NodeId id : direct_) {
      for (const uint32_t reader : readers_[graph_.nodes[id].home]) {
        if (reader != groupOf(id) && late.contains(reader)) {
          edges.insert({reader, groupOf(id)});
        }
      }
    }
    order.clear();
    std::set<uint32_t> left = late;
    while (!left.empty()) {
      const auto free = std::find_if(left.begin(), left.end(), [&](uint32_t at) {
        return std::none_of(edges.begin(), edges.end(),
                            [&](const auto& edge) { return edge.second == at && left.contains(edge.first); });
      });
      if (free == left.end()) {
        return false;
      }
      order.push_back(*free);
      left.erase(free);
    }
    return true;
  }

  // The store as a group of its own.
  uint32_t alone(NodeId id) {
    Group& group = grouping_.groups[groupOf(id)];
    if (group.members.size() == 1) {
      return groupOf(id);
    }
    std::erase(group.members, id);
    Group made;
    made.members = {id};
    made.sizes = graph_.nodes[id].sizes;
    grouping_.groupOf[id] = static_cast<uint32_t>(grouping_.groups.size());
    grouping_.groups.push_back(std::move(made));
    return grouping_.groupOf[id];
  }

  const TensorGraph& graph_;
  Grouping& grouping_;
  std::vector<NodeId> writes_, direct_;
  std::vector<std::set<uint32_t>> users_;    // by group: other groups
  std::vector<std::set<uint32_t>> readers_;  // by input: groups
  std::vector<bool> needed_;                 // by group: a call, a view of the outside, a concatenation
  std::vector<bool> lateable_;               // by group
};

}  // namespace

void placeWrites(TensorGraph& graph) {
  const size_t first = graph.outputs.size() - graph.writes.size();
  std::vector<NodeId> contents(graph.outputs.begin() + static_cast<std::ptrdiff_t>(first),
                               graph.outputs.end());
  graph.outputs.resize(first);
  const auto isWritten = [&](NodeId id) {
    return std::any_of(graph.writes.begin(), graph.writes.end(),
                       [&](const Write& write) { return graph.inputs[write.input] == id; });
  };
  for (size_t k = 0; k < contents.size(); ++k) {
    const Write& to = graph.writes[k];
    Node node;
    node.kind = NodeKind::kPoint;
    node.op = Core::kCast;
    node.elem = to.elem;
    node.sizes = to.sizes;
    // What other stores overwrite may have to be copied before.
    if (isWritten(memoryOf(graph, contents[k]).base)) {
      node.strides = contiguousStrides(node.sizes);
      node.args = {contents[k]};
      contents[k] = graph.add(node);
    }
    node.strides = to.strides;
    node.args = {contents[k]};
    node.home = graph.inputs[to.input];
    node.offset = to.offset;
    node.write = true;
    graph.add(std::move(node));
  }
}

std::vector<uint32_t> lastGroups(const TensorGraph& graph, Grouping& grouping) {
  return WriteOrder(graph, grouping).run();
}

}  // namespace kintsugi::passes
