#include "passes/merge_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "passes/simplify_graph.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

// A read of a kernel: whose memory, and by which strides.
struct Load {
  NodeId base = ir::kNone;
  int64_t offset = 0;
  std::vector<int64_t> strides;
  auto operator<=>(const Load&) const = default;
};

struct Candidate {
  std::set<Load> loads;
  size_t stores = 0;
  bool varies = false;  // from run to run
  bool moves = false;   // looks up places, or reads parts
  std::string key;      // of what it runs over, in which order of memory
};

class Merger {
 public:
  Merger(const TensorGraph& graph, Grouping& grouping)
      : graph_(graph),
        grouping_(grouping),
        stored_(storedNodes(graph, grouping)),
        varies_(varyingNodes(graph)) {}

  void run() {
    for (const Group& group : grouping_.groups) {
      candidates_.push_back(group.members.empty() || group.product || group.alone ? Candidate()
                                                                                  : describe(group));
    }
    std::vector<uint32_t> order;
    for (uint32_t at = 0; at < candidates_.size(); ++at) {
      if (!candidates_[at].key.empty()) {
        order.push_back(at);
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return grouping_.groups[a].level < grouping_.groups[b].level;
    });
    // Only the last few of each kind are compared, to keep the pass linear. Fewer: pairs are
    // missed that have others of their kind between them. More: the time of the pass grows.
    constexpr size_t kMostOpen = 8;
    std::map<std::string, std::vector<uint32_t>> open;
    for (const uint32_t at : order) {
      std::vector<uint32_t>& alike = open[candidates_[at].key];
      const auto found =
          std::find_if(alike.begin(), alike.end(), [&](uint32_t into) { return pays(into, at); });
      if (found != alike.end()) {
        merge(*found, at);
        continue;
      }
      if (alike.size() == kMostOpen) {
        alike.erase(alike.begin());
      }
      alike.push_back(at);
    }
  }

 private:
  Candidate describe(const Group& group) const {
    Candidate out;
    const Node* form = nullptr;
    for (const NodeId id : group.members) {
      const Node& node = graph_.nodes[id];
      out.varies = out.varies || varies_[id];
      out.stores += stored_[id] ? 1 : 0;
      out.moves =
          out.moves || !node.bounds.empty() || (node.kind == NodeKind::kPoint && node.op == Core::kTake);
      form = node.sizes == group.sizes ? &node : form;
      for (const NodeId arg : node.args) {
        const Node& from = graph_.nodes[arg];
        const NodeId base = memoryOf(graph_, arg).base;
        if (from.kind != NodeKind::kConst && grouping_.groupOf[arg] != grouping_.groupOf[id]) {
          out.loads.insert(
              {base, memoryOf(graph_, arg).offset, hintsOf(stridesIn(from, group.sizes.size()))});
        }
      }
    }
    // A store to an input is made late only by a kernel of which all can come late (passes/order_writes.h).
    const bool writes = std::any_of(group.members.begin(), group.members.end(),
                                    [&](NodeId id) { return graph_.nodes[id].write; });
    out.key = writes ? "writes" : out.varies ? "varies" : "stays";
    for (const Size& size : group.sizes) {
      out.key += " " + textOf(size);
    }
    if (form != nullptr) {
      std::vector<size_t> order(group.sizes.size());
      for (size_t d = 0; d < order.size(); ++d) {
        order[d] = d;
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return form->strides[a].hint > form->strides[b].hint; });
      for (const size_t d : order) {
        out.key += group.sizes[d] == 1 ? "" : "/" + std::to_string(d);
      }
    }
    return out;
  }

  bool pays(uint32_t into, uint32_t from) const {
    // Members of what is merged. More: the time to compile grows faster than the size, and values leave the
    // registers. Fewer: a kernel that a merge would save takes a launch, which is all that a small one takes;
    // so small ones may be larger.
    constexpr size_t kMostSmall = 64, kMost = 32;
    const Target::Costs& costs = target().costs;
    const Group& a = grouping_.groups[into];
    const Group& b = grouping_.groups[from];
    if (std::max(a.level, b.level) >= std::min(a.firstUser, b.firstUser) || !mayMerge(graph_, a, b)) {
      return false;
    }
    const Candidate& x = candidates_[into];
    const Candidate& y = candidates_[from];
    const size_t members = a.members.size() + b.members.size();
    size_t streams = x.stores + y.stores + x.loads.size();
    bool shared = false;
    for (const Load& load : y.loads) {
      const bool both = x.loads.contains(load);
      streams += both ? 0 : 1;
      shared = shared || (both && isLarge(load, a.sizes));
    }
    if (elementCount(a.sizes).hint <= costs.smallKernel) {
      return members <= kMostSmall && streams <= costs.smallStreams;
    }
    return shared && !x.moves && !y.moves && members <= kMost && streams <= costs.streams;
  }

  // Does it take as much memory as there is to compute, about?
  static bool isLarge(const Load& load, const std::vector<Size>& sizes) {
    int64_t read = 1, all = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      read *= load.strides[d] == 0 ? 1 : sizes[d].hint;
      all *= sizes[d].hint;
    }
    return 2 * read >= all;
  }

  void merge(uint32_t into, uint32_t from) {
    Group& group = grouping_.groups[into];
    group.level = std::max(group.level, grouping_.groups[from].level);
    mergeGroups(grouping_, into, from);
    Candidate& to = candidates_[into];
    to.loads.merge(candidates_[from].loads);
    to.stores += candidates_[from].stores;
    to.moves = to.moves || candidates_[from].moves;
  }

  const TensorGraph& graph_;
  Grouping& grouping_;
  const std::vector<bool> stored_;
  const std::vector<bool> varies_;
  std::vector<Candidate> candidates_;  // by group
};

}  // namespace

void mergeIsomorphic(const TensorGraph& graph, Grouping& grouping) { Merger(graph, grouping).run(); }

}  // namespace kintsugi::passes
