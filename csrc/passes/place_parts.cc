#include "passes/place_parts.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>

#include "passes/move_reshapes.h"
#include "passes/products.h"
#include "passes/rewrite_nodes.h"
#include "passes/simplify_graph.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

// The new place of a node in the memory of another tensor: strides, and the offset of its first element.
struct Place {
  std::vector<Size> strides;
  int64_t first = 0;
};
using Places = std::unordered_map<NodeId, Place>;

// Memory that is cut into blocks, which are moved apart.
struct Blocks {
  int64_t length = 1;  // elements of a block
  int64_t step = 1;    // from one block to the next, at their new place
  int64_t count = 0;   // elements of all blocks

  int64_t moved(int64_t at) const { return at / length * step + at % length; }

  // Nothing: the elements are not in blocks.
  std::optional<Place> moved(const Node& node, int64_t first) const {
    int64_t within = first % length, last = first;
    Place place{node.strides, moved(first)};
    for (size_t d = 0; d < node.sizes.size(); ++d) {
      const int64_t stride = node.strides[d].hint, size = node.sizes[d].hint;
      if (size <= 1 || stride == 0) {
        continue;
      }
      last += (size - 1) * stride;
      if (stride % length == 0) {
        place.strides[d] = stride / length * step;
      } else {
        within += (size - 1) * stride;
      }
      if (stride < 0) {
        return std::nullopt;
      }
    }
    return first >= 0 && within < length && last < count ? std::optional(std::move(place)) : std::nullopt;
  }
};

class Placer {
 public:
  explicit Placer(TensorGraph& graph)
      : graph_(graph), escapes_(escapingNodes(graph)), varies_(varyingNodes(graph)) {
    users_.resize(graph.nodes.size());
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      for (const NodeId arg : graph.nodes[id].args) {
        users_[arg].push_back(id);
      }
    }
  }

  void run() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (graph_.nodes[id].kind == NodeKind::kJoin) {
        decide(id);
        decided_ = id + 1;
      }
    }
    rewrite();
  }

 private:
  const Node& node(NodeId id) const { return graph_.nodes[id]; }

  // A call can't read what lies within another concatenation, however little is won by not calling.
  bool mayBeCall(const Node& join) const {
    return std::none_of(join.args.begin(), join.args.end(),
                        [&](NodeId arg) { return node(memoryOf(graph_, arg).base).home != ir::kNone; });
  }

  void decide(NodeId join) {
    const Node& all = node(join);
    const bool mayCall = mayBeCall(all);
    std::vector<bool> placed;  // by argument
    std::vector<Places> moves;
    std::vector<NodeId> bases;
    Size low = 0;
    size_t copies = 0;
    for (const NodeId arg : all.args) {
      const Place slice = sliceOf(all, low.hint);
      low = low + (all.stacked ? Size(1) : node(arg).sizes[all.dim]);
      if (mayCall && isNarrow(all, arg)) {
        return;  // a call
      }
      const NodeId base = memoryOf(graph_, arg).base;
      const bool first = std::find(bases.begin(), bases.end(), base) == bases.end();
      const std::optional<Places> places = first ? placesFor(join, arg, base, slice) : std::nullopt;
      if (places) {
        bases.push_back(base);
        moves.push_back(std::move(*places));
      }
      copies += places ? 0 : 1;
      placed.push_back(places.has_value());
    }
    // Parts without a place are copied, each by a launch; a call of the library copies all, those with a
    // place too. With more such launches than that, the call is faster; with a smaller bound, more is copied.
    constexpr size_t kMostCopies = 4;
    const int64_t small = target().costs.smallTensor;
    const bool many = copies > bases.size() + kMostCopies;
    if (mayCall && (many || (bases.empty() && elementCount(all.sizes).hint > small))) {
      return;
    }
    for (const Places& places : moves) {
      move(places);
    }
    for (size_t k = 0; k < bases.size(); ++k) {
      graph_.nodes[bases[k]].home = join;
      graph_.nodes[bases[k]].offset = moves[k].at(bases[k]).first;
    }
    placed_.emplace(join, std::move(placed));
  }

  // `low`: along the dimension.
  static Place sliceOf(const Node& all, int64_t low) {
    Place place{all.strides, low * all.strides[all.dim].hint};
    if (all.stacked) {
      place.strides.erase(place.strides.begin() + all.dim);
    }
    return place;
  }

  // Stores of a few elements each are slower than to compute all in one run and to copy it.
  bool isNarrow(const Node& all, NodeId arg) const {
    const Target::Costs& costs = target().costs;
    const int64_t run = all.strides[all.dim].hint * (all.stacked ? 1 : node(arg).sizes[all.dim].hint);
    const int64_t count = elementCount(node(arg).sizes).hint;
    return run < costs.narrowRun && run < count && count > costs.narrowTensor;
  }

  // The new places of all nodes in the memory of `base`. Nothing: `base` has to stay where it is.
  std::optional<Places> placesFor(NodeId join, NodeId arg, NodeId base, const Place& slice) const {
    // What is the same in every run should be computed in the first one only.
    if (!isOurs(base) || node(base).home != ir::kNone || escapes_[base] || varies_[base] != varies_[join]) {
      return std::nullopt;
    }
    std::vector<NodeId> members;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (node(id).kind != NodeKind::kConst && tensorOf(graph_, id).base == base) {
        members.push_back(id);
      }
    }
    Places places;
    if (members.size() == 1) {
      places[base] = slice;
    } else {
      const std::optional<Blocks> blocks = blocksOf(node(join), node(base), arg, slice);
      for (const NodeId id : members) {
        const bool fixed = allFixed(node(id).sizes) && allFixed(node(id).strides);
        auto place = blocks && fixed ? blocks->moved(node(id), tensorOf(graph_, id).offset) : std::nullopt;
        if (!place) {
          return std::nullopt;
        }
        place->first += slice.first;
        places[id] = std::move(*place);
      }
    }
    const bool right = std::all_of(members.begin(), members.end(), [&](NodeId id) {
      return !escapes_[id] && std::all_of(users_[id].begin(), users_[id].end(),
                                          [&](NodeId user) { return mayRead(user, id, places); });
    });
    return right && mayWrite(base, places) ? std::optional(std::move(places)) : std::nullopt;
  }

  // Computed by code that writes wherever it is told to.
  bool isOurs(NodeId id) const {
    const Node& made = node(id);
    return (isCore(made) && made.kind != NodeKind::kAttention) || placed_.contains(id) || isProductCall(made);
  }
  bool isProductCall(const Node& made) const {
    return made.kind == NodeKind::kResult && node(made.args[0]).product;
  }

  // The argument has to be all of the memory, in the order of the slice.
  std::optional<Blocks> blocksOf(const Node& all, const Node& base, NodeId arg, const Place& slice) const {
    const Node& seen = node(arg);
    if (!allFixed(all.sizes) || !allFixed(base.sizes) || !allFixed(seen.sizes) || !allFixed(seen.strides) ||
        memoryOf(graph_, arg).offset != 0 || !isDense(seen.sizes, seen.strides) ||
        !isDense(base.sizes, base.strides) || elementCount(seen.sizes) != elementCount(base.sizes)) {
      return std::nullopt;
    }
    const int64_t unit = all.strides[all.dim].hint;
    const Blocks blocks{.length = unit * (all.stacked ? 1 : seen.sizes[all.dim].hint),
                        .step = unit * all.sizes[all.dim].hint,
                        .count = elementCount(seen.sizes).hint};
    for (size_t d = 0; d < seen.sizes.size(); ++d) {
      const int64_t stride = seen.strides[d].hint, wanted = slice.strides[d].hint;
      const bool outer = wanted >= blocks.step;
      if (seen.sizes[d] != 1 && (outer ? stride * blocks.step != wanted * blocks.length : stride != wanted)) {
        return std::nullopt;
      }
    }
    return blocks;
  }

  Node movedNode(NodeId id, const Places& places) const {
    Node moved = node(id);
    if (const auto found = places.find(id); found != places.end()) {
      moved.strides = found->second.strides;
    }
    return moved;
  }

  // Kernels read any slice; products rows, reductions what is one run.
  bool mayRead(NodeId id, NodeId what, const Places& places) const {
    const Node& user = node(id);
    const auto form = [&](bool byRows) {
      return productForm(movedNode(user.args[0], places), movedNode(user.args[1], places), byRows);
    };
    switch (user.kind) {
      case NodeKind::kPoint:
        return user.op != Core::kTake || user.args[0] != what;
      case NodeKind::kReduce: {
        const Node moved = movedNode(what, places);
        return rowsAreRuns(moved, user.reduced, user.trailing);
      }
      case NodeKind::kProduct:
        return form(user.byRows).has_value();
      case NodeKind::kView:
        return user.args[0] == what && std::count(user.args.begin(), user.args.end(), what) == 1;
      case NodeKind::kJoin:
        return id >= decided_ || placed_.contains(id);  // the others are calls
      case NodeKind::kCall:
        return user.product && form(user.byRows).has_value();
      case NodeKind::kAttention:
      case NodeKind::kInput:
      case NodeKind::kConst:
      case NodeKind::kResult:
        break;
    }
    return false;
  }

  static bool rowsAreRuns(const Node& from, size_t reduced, size_t trailing) {
    const size_t end = from.sizes.size() - trailing;
    for (size_t d = end - reduced; d + 1 < end; ++d) {
      if (from.sizes[d] != 1 && from.sizes[d + 1] != 1 &&
          from.strides[d] != from.strides[d + 1] * from.sizes[d + 1]) {
        return false;
      }
    }
    return true;
  }

  // Products write rows.
  bool mayWrite(NodeId base, const Places& places) const {
    const Node moved = movedNode(base, places);
    if (moved.kind != NodeKind::kProduct && !isProductCall(moved)) {
      return true;
    }
    const Size columns = moved.sizes.back();
    if (moved.strides.back() != 1 || columns == 1) {
      return false;
    }
    if (moved.kind == NodeKind::kProduct) {
      return true;
    }
    const Size rows = elementCount(std::vector<Size>(moved.sizes.begin(), moved.sizes.end() - 1));
    const auto strides = stridesInShape(moved.sizes, moved.strides, {rows, columns});
    return strides && (*strides)[0].fixed() && (*strides)[0].hint <= std::numeric_limits<int32_t>::max() &&
           (rows == 1 || (*strides)[0].hint >= columns.hint);
  }

  void move(const Places& places) {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const auto found = places.find(id);
      if (found == places.end()) {
        continue;
      }
      Node& moved = graph_.nodes[id];
      moved.strides = found->second.strides;
      const NodeId in = moved.kind == NodeKind::kView ? moved.args[0] : moved.home;
      if (in != ir::kNone) {
        moved.offset = found->second.first - places.at(in).first;
      }
    }
  }

  // Copies come in, and calls for what is not worth it.
  void rewrite() {
    std::vector<NodeId> to(graph_.nodes.size(), ir::kNone);
    rewriteNodes(graph_, [&](NodeId old, Node& node) {
      const auto found = placed_.find(old);
      const bool placed = found != placed_.end();
      if (node.kind != NodeKind::kJoin) {
        to[old] = graph_.add(std::move(node));
      } else if (!placed && node.instruction != ir::kNone) {
        to[old] = addCall(std::move(node));
      } else {  // one that no instruction made has no call to go back to
        int64_t low = 0;
        for (size_t k = 0; k < node.args.size(); ++k) {
          const Place slice = sliceOf(node, low);
          low += node.stacked ? 1 : graph_.nodes[node.args[k]].sizes[node.dim].hint;
          node.args[k] = placed && found->second[k] ? node.args[k] : addCopy(node.args[k], slice, old);
        }
        to[old] = graph_.add(std::move(node));
      }
      return to[old];
    });
    for (Node& node : graph_.nodes) {
      node.home = node.home != ir::kNone ? to[node.home] : ir::kNone;
    }
  }

  NodeId addCopy(NodeId from, const Place& slice, NodeId home) {
    Node copy;
    copy.kind = NodeKind::kPoint;
    copy.op = Core::kCast;
    copy.elem = graph_.nodes[from].elem;
    copy.sizes = graph_.nodes[from].sizes;
    copy.strides = slice.strides;
    copy.args = {from};
    copy.home = home;
    copy.offset = slice.first;
    return graph_.add(std::move(copy));
  }

  NodeId addCall(Node result) {
    Node call;
    call.kind = NodeKind::kCall;
    call.instruction = result.instruction;
    call.args = std::move(result.args);
    result.kind = NodeKind::kResult;
    result.fresh = true;
    result.args = {graph_.add(std::move(call))};
    result.instruction = ir::kNone;
    return graph_.add(std::move(result));
  }

  TensorGraph& graph_;
  const std::vector<bool> escapes_;
  std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> varies_;                        // from run to run
  std::unordered_map<NodeId, std::vector<bool>> placed_;  // of those that stay: which arguments need no copy
  NodeId decided_ = 0;                                    // concatenations before this one
};

}  // namespace

void placeParts(TensorGraph& graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [](const Node& node) { return node.kind == NodeKind::kJoin; });
  if (any) {
    Placer(graph).run();
  }
}

}  // namespace kintsugi::passes
