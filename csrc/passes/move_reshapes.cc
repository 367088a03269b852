#include "passes/move_reshapes.h"

#include <algorithm>
#include <functional>

#include "passes/broadcast_strides.h"
#include "passes/rewrite_nodes.h"

namespace kintsugi::passes {

namespace {

bool isPlain(const Node& node) { return node.strides == contiguousStrides(node.sizes); }

class Mover {
 public:
  explicit Mover(TensorGraph& graph) : graph_(graph) {}

  void run() {
    rewriteNodes(graph_, [this](NodeId, Node& node) {
      const NodeId moved = node.kind == NodeKind::kPoint    ? movePoint(node)
                           : node.kind == NodeKind::kReduce ? moveReduction(node)
                                                            : ir::kNone;
      return moved != ir::kNone ? moved : graph_.add(std::move(node));
    });
  }

 private:
  // What a node reshapes, if that was computed here.
  NodeId reshaped(NodeId id) const {
    const Node& view = graph_.nodes[id];
    if (view.kind != NodeKind::kView || view.offset != 0 || !isPlain(view)) {
      return ir::kNone;
    }
    const Node& base = graph_.nodes[view.args[0]];
    const bool fits = isCore(base) && isPlain(base) && base.elem == view.elem &&
                      elementCount(base.sizes) == elementCount(view.sizes);
    return fits ? view.args[0] : ir::kNone;
  }

  // The node in the other shape, and a view of it that stands for the old one.
  NodeId replace(const Node& old, Node made) {
    made.strides = contiguousStrides(made.sizes);
    made.value = ir::kNone;
    Node view;
    view.kind = NodeKind::kView;
    view.elem = old.elem;
    view.sizes = old.sizes;
    view.strides = old.strides;
    view.value = old.value;
    view.args = {graph_.add(std::move(made))};
    return graph_.add(std::move(view));
  }

  NodeId movePoint(const Node& node) {
    if (!isPlain(node) || !node.bounds.empty() || node.op == Core::kTake) {
      return ir::kNone;
    }
    for (const NodeId arg : node.args) {
      const NodeId base = reshaped(arg);
      if (base == ir::kNone || graph_.nodes[arg].sizes != node.sizes) {
        continue;
      }
      const size_t before = graph_.nodes.size();
      Node made = node;
      made.sizes = graph_.nodes[base].sizes;
      const std::vector<Size> shape = made.sizes;
      const bool ok = std::all_of(made.args.begin(), made.args.end(), [&](NodeId& other) {
        other = seenIn(other, node.sizes, shape);
        return other != ir::kNone;
      });
      if (ok) {
        return replace(node, std::move(made));
      }
      graph_.nodes.resize(before);
    }
    return ir::kNone;
  }

  // An argument of a node of size `from` as one of a node of size `shape`.
  NodeId seenIn(NodeId id, const std::vector<Size>& from, const std::vector<Size>& shape) {
    const Node node = graph_.nodes[id];
    if (node.kind == NodeKind::kConst) {
      return id;
    }
    const auto before = broadcastStrides(node, from, std::equal_to<>());
    const auto strides = before ? stridesInShape(from, *before, shape) : std::nullopt;
    if (!strides) {
      return ir::kNone;
    }
    const NodeId base = reshaped(id);
    for (const NodeId candidate : {base, id}) {
      if (candidate != ir::kNone &&
          broadcastStrides(graph_.nodes[candidate], shape, std::equal_to<>()) == strides) {
        return candidate;
      }
    }
    // Seen in another shape, what is computed here would have to be stored.
    if (isCore(node)) {
      return ir::kNone;
    }
    Node view;
    view.kind = NodeKind::kView;
    view.elem = node.elem;
    view.strides = *strides;
    for (size_t d = 0; d < shape.size(); ++d) {
      view.sizes.push_back((*strides)[d] == 0 ? Size(1) : shape[d]);
    }
    view.args = {id};
    return graph_.add(std::move(view));
  }

  NodeId moveReduction(const Node& node) {
    const NodeId base = reshaped(node.args[0]);
    const size_t same = node.reduced + node.trailing;
    if (base == ir::kNone || !isPlain(node)) {
      return ir::kNone;
    }
    Node made = node;
    made.sizes = graph_.nodes[base].sizes;
    const std::vector<Size>& sizes = graph_.nodes[node.args[0]].sizes;
    if (made.sizes.size() < same ||
        !std::equal(made.sizes.rbegin(), made.sizes.rbegin() + static_cast<std::ptrdiff_t>(same),
                    sizes.rbegin())) {
      return ir::kNone;
    }
    const auto end = made.sizes.end() - node.trailing;
    std::fill(end - node.reduced, end, Size(1));
    made.args = {base};
    return replace(node, std::move(made));
  }

  TensorGraph& graph_;
};

}  // namespace

std::optional<std::vector<Size>> stridesInShape(const std::vector<Size>& sizes,
                                                const std::vector<Size>& strides,
                                                const std::vector<Size>& shape) {
  std::vector<Size> out(shape.size(), Size(0));
  size_t from = sizes.size();
  Size left = 1, stride = 0;  // of the present dimension: what has not been given away
  for (size_t d = shape.size(); d-- > 0;) {
    Size wanted = shape[d], next = 0;
    bool first = true;
    while (wanted != 1) {
      while (left == 1) {
        if (from == 0) {
          return std::nullopt;
        }
        left = sizes[--from];
        stride = strides[from];
      }
      Size piece = wanted;
      if (wanted != left) {
        if (!wanted.fixed() || !left.fixed() || wanted.hint == 0 || left.hint == 0) {
          return std::nullopt;
        }
        piece = wanted.hint % left.hint == 0 ? left : wanted;
        if (left.hint % piece.hint != 0) {
          return std::nullopt;
        }
      }
      if (first) {
        out[d] = stride;
      } else if (stride != next) {
        return std::nullopt;
      }
      first = false;
      next = stride * piece;
      const bool all = piece == left;
      stride = stride * piece;
      left = all ? Size(1) : Size(left.hint / piece.hint);
      wanted = piece == wanted ? Size(1) : Size(wanted.hint / piece.hint);
    }
  }
  const auto rest = sizes.begin() + static_cast<std::ptrdiff_t>(from);
  const bool all = left == 1 && std::all_of(sizes.begin(), rest, [](const Size& size) { return size == 1; });
  return all ? std::optional(std::move(out)) : std::nullopt;
}

void moveReshapes(TensorGraph& graph) { Mover(graph).run(); }

}  // namespace kintsugi::passes
