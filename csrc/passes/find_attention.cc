#include "passes/find_attention.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

#include "ops/operator.h"
#include "passes/attention.h"
#include "passes/broadcast_strides.h"
#include "passes/move_reshapes.h"

namespace kintsugi::passes {

namespace {

class Finder {
 public:
  Finder(TensorGraph& graph, const ir::Trace& trace) : graph_(graph), trace_(trace) {
    users_.resize(graph.nodes.size());
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      for (const NodeId arg : graph.nodes[id].args) {
        users_[arg].push_back(id);
      }
    }
    for (const NodeId id : graph.outputs) {
      if (id != ir::kNone) {
        users_[id].push_back(ir::kNone);
      }
    }
  }

  void run() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (find(id)) {
        storeTransposed(id);
      }
    }
  }

 private:
  const Node& node(NodeId id) const { return graph_.nodes[id]; }
  bool is(NodeId id, Core op) const {
    return (node(id).kind == NodeKind::kPoint || node(id).kind == NodeKind::kReduce) && node(id).op == op;
  }
  bool usedOnlyBy(NodeId id, std::initializer_list<NodeId> users) const {
    return std::all_of(users_[id].begin(), users_[id].end(), [&](NodeId user) {
      return std::find(users.begin(), users.end(), user) != users.end();
    });
  }

  // The two sides of a product of matrices, many at once or not. Nothing: it is none.
  struct Sides {
    NodeId left = ir::kNone, right = ir::kNone;
  };
  std::optional<Sides> sidesOf(NodeId id) const {
    const Node& made = node(id);
    if (made.elem != Elem::kF32) {
      return std::nullopt;
    }
    if (made.kind == NodeKind::kProduct && !made.byRows) {
      return Sides{made.args[0], made.args[1]};
    }
    if (made.kind != NodeKind::kResult || node(made.args[0]).kind != NodeKind::kCall) {
      return std::nullopt;
    }
    const Node& call = node(made.args[0]);
    const ir::Instruction& ins = trace_.code[call.instruction];
    const ops::ProductOperands& product = ops::infoOf(trace_.operatorOf(ins)).product;
    if (ins.resultCount != 1 || call.args.size() != 2 || product.operands != 2 || product.byRows) {
      return std::nullopt;
    }
    return Sides{call.args[product.left], call.args[product.right]};
  }

  // What is seen in another shape, elements in the same order.
  NodeId reshaped(NodeId id) const {
    const Node& view = node(id);
    if (view.kind != NodeKind::kView || view.offset != 0 || view.strides != contiguousStrides(view.sizes)) {
      return ir::kNone;
    }
    const Node& base = node(view.args[0]);
    const bool same = base.strides == contiguousStrides(base.sizes) && base.elem == view.elem &&
                      elementCount(base.sizes) == elementCount(view.sizes);
    return same ? view.args[0] : ir::kNone;
  }

  // Of a softmax over the last dimension: what it is of. kNone: it is none, or parts of it are used
  // elsewhere.
  NodeId softmaxInput(NodeId id) const {
    if (!is(id, Core::kDiv)) {
      return ir::kNone;
    }
    const NodeId power = node(id).args[0], sum = node(id).args[1];
    const auto lastOnly = [&](NodeId reduce) {
      return node(reduce).reduced == 1 && node(reduce).trailing == 0;
    };
    if (!is(power, Core::kExp) || !is(sum, Core::kReduceSum) || node(sum).args[0] != power ||
        !lastOnly(sum) || !is(node(power).args[0], Core::kSub)) {
      return ir::kNone;
    }
    const NodeId shifted = node(power).args[0];
    const NodeId x = node(shifted).args[0], top = node(shifted).args[1];
    const bool fits = is(top, Core::kReduceMax) && node(top).args[0] == x && lastOnly(top) &&
                      usedOnlyBy(power, {id, sum}) && usedOnlyBy(sum, {id}) && usedOnlyBy(shifted, {power}) &&
                      usedOnlyBy(top, {shifted}) && usedOnlyBy(x, {shifted, top}) &&
                      node(x).elem == Elem::kF32;
    return fits ? x : ir::kNone;
  }

  // What is between a product of queries and keys and the softmax.
  struct Scores {
    NodeId product = ir::kNone;
    std::vector<NodeId> nodes;                 // that are made of it, users last
    std::unordered_map<NodeId, bool> depends;  // on it, by node
    std::vector<Size> shape;                   // the one of the most dimensions that they have
  };

  // Is the node made of the product, element by element?
  bool follow(NodeId id, Scores& scores) const {
    // Nodes between product and softmax: scale, masks and biases. More cost time to compile for each product
    // that is no attention; with fewer, scores with many masks are computed as they stand.
    constexpr size_t kMost = 32;
    if (const auto known = scores.depends.find(id); known != scores.depends.end()) {
      return known->second;
    }
    bool depends = false;
    const Node& at = node(id);
    if (sidesOf(id)) {
      // Another one is a bias: loaded.
      depends = scores.product == ir::kNone || scores.product == id;
      scores.product = depends ? id : scores.product;
    } else if (at.kind == NodeKind::kPoint && at.bounds.empty() && at.op != Core::kTake &&
               scores.nodes.size() < kMost) {
      for (const NodeId arg : at.args) {
        depends = follow(arg, scores) || depends;
      }
    } else if (reshaped(id) != ir::kNone) {
      depends = follow(reshaped(id), scores);
    }
    scores.depends[id] = depends;
    if (depends) {
      scores.nodes.push_back(id);
      scores.shape = at.sizes.size() > scores.shape.size() ? at.sizes : scores.shape;
    }
    return depends;
  }

  // Are the nodes used by nothing else?
  bool isOwn(const Scores& scores, std::initializer_list<NodeId> users) const {
    return std::all_of(scores.nodes.begin(), scores.nodes.end(), [&](NodeId id) {
      return std::all_of(users_[id].begin(), users_[id].end(), [&](NodeId user) {
        const auto found = scores.depends.find(user);
        return user != ir::kNone && ((found != scores.depends.end() && found->second) ||
                                     std::find(users.begin(), users.end(), user) != users.end());
      });
    });
  }

  static std::vector<Size> padded(const std::vector<Size>& sizes) {
    std::vector<Size> out(4 - sizes.size(), Size(1));
    out.insert(out.end(), sizes.begin(), sizes.end());
    return out;
  }

  // Memory of `id`, which is broadcast to `from`, by the dimensions of `shape`.
  std::optional<std::vector<Size>> stridesBy(NodeId id, const std::vector<Size>& from,
                                             const std::vector<Size>& shape) const {
    const auto strides = broadcastStrides(node(id), from, unify);
    return strides ? stridesInShape(from, *strides, shape) : std::nullopt;
  }

  // A side of a product whose result has the outer dimensions of `product`, in those of `shape`.
  std::optional<AttentionOperand> operand(NodeId id, const std::vector<Size>& product,
                                          const std::vector<Size>& shape, bool turned) const {
    const Node& matrix = node(id);
    const size_t rank = matrix.sizes.size();
    if (rank < 2 || rank > product.size()) {
      return std::nullopt;
    }
    std::vector<Size> from(product.begin(), product.end() - 2), to(shape.begin(), shape.end() - 2);
    for (std::vector<Size>* sizes : {&from, &to}) {
      sizes->insert(sizes->end(), matrix.sizes.end() - 2, matrix.sizes.end());
    }
    auto strides = stridesBy(id, from, to);
    if (!strides) {
      return std::nullopt;
    }
    if (turned) {
      std::swap((*strides)[2], (*strides)[3]);
    }
    const bool run = (*strides)[3] == 1 || matrix.sizes[rank - (turned ? 2 : 1)] == 1;
    (*strides)[3] = 1;
    return run ? std::optional(AttentionOperand{id, std::move(*strides)}) : std::nullopt;
  }

  // The ops of the kernel. kNone: something in it can't be one.
  uint32_t addOps(AttentionMaker& maker, const Scores& scores, NodeId top,
                  const std::vector<Size>& shape) const {
    std::unordered_map<NodeId, uint32_t> opOf;
    std::map<std::pair<NodeId, size_t>, uint32_t> loads;  // by the rank that they are broadcast to
    const auto argument = [&](NodeId id, const std::vector<Size>& from) -> uint32_t {
      if (const auto found = opOf.find(id); found != opOf.end()) {
        return found->second;
      }
      const Node& leaf = node(id);
      if (leaf.kind == NodeKind::kConst) {
        const double number = isFloat(leaf.elem) ? leaf.number : static_cast<double>(leaf.integer);
        return opOf[id] = maker.constant(number, leaf.elem);
      }
      if (const auto found = loads.find({id, from.size()}); found != loads.end()) {
        return found->second;
      }
      const auto strides = stridesBy(id, from, shape);
      return strides ? loads[{id, from.size()}] = maker.load(id, *strides) : ir::kNone;
    };
    for (const NodeId id : scores.nodes) {
      const Node& at = node(id);
      if (id == scores.product) {
        opOf[id] = maker.score();
        continue;
      }
      if (at.kind == NodeKind::kView) {
        opOf[id] = opOf.at(at.args[0]);
        continue;
      }
      std::vector<uint32_t> args;
      for (const NodeId arg : at.args) {
        args.push_back(argument(arg, at.sizes));
        if (args.back() == ir::kNone) {
          return ir::kNone;
        }
      }
      const bool known = at.elem == Elem::kF32 || at.elem == Elem::kBool;
      if (!known || (at.op == Core::kCast && node(at.args[0]).elem == Elem::kBool && at.elem != Elem::kF32)) {
        return ir::kNone;
      }
      opOf[id] = maker.point(at.op, at.elem, std::move(args));
    }
    return opOf.at(top);
  }

  bool find(NodeId id) {
    const auto outer = sidesOf(id);
    if (!outer) {
      return false;
    }
    NodeId soft = outer->left, user = id;
    const NodeId caller = node(id).kind == NodeKind::kResult ? node(id).args[0] : id;
    user = caller;
    while (reshaped(soft) != ir::kNone && usedOnlyBy(soft, {user})) {
      user = soft;
      soft = reshaped(soft);
    }
    const NodeId top = usedOnlyBy(soft, {user}) ? softmaxInput(soft) : ir::kNone;
    Scores scores;
    if (top == ir::kNone || !follow(top, scores) || scores.product == ir::kNone || scores.shape.size() > 4) {
      return false;
    }
    const NodeId shifted = node(node(soft).args[0]).args[0];
    if (!isOwn(scores, {shifted, node(shifted).args[1]})) {
      return false;
    }
    return make(id, *outer, scores, top);
  }

  bool make(NodeId id, const Sides& outer, const Scores& scores, NodeId top) {
    const Sides inner = *sidesOf(scores.product);
    const std::vector<Size>& product = node(scores.product).sizes;
    const std::vector<Size> shape = padded(scores.shape);
    const Node& result = node(id);
    const size_t rank = node(inner.left).sizes.size(), keyRank = node(inner.right).sizes.size();
    if (rank < 2 || keyRank < 2 || product.size() < 2 || result.sizes.size() < 2 || result.sizes.size() > 4 ||
        product.size() > 4) {
      return false;
    }
    const Size head = folded(node(inner.left).sizes[rank - 1]);
    const Size across = folded(node(inner.right).sizes[keyRank - 2]);
    const Size width = folded(result.sizes.back());
    // Sizes of heads are constants of the code. And nodes that the kernel replaces can't bind symbols of
    // sizes any more.
    const Size keys = node(inner.right).sizes[keyRank - 1];
    const Size queries = node(inner.left).sizes[rank - 2];
    const size_t valueRank = node(outer.right).sizes.size();
    bool agree = unify(head, head.hint) && unify(width, width.hint) && unify(head, across) &&
                 unify(queries, product[product.size() - 2]) && unify(keys, product.back()) &&
                 unify(queries, result.sizes[result.sizes.size() - 2]) && valueRank >= 2 &&
                 unify(keys, node(outer.right).sizes[valueRank - 2]) && unify(queries, shape[2]) &&
                 unify(keys, shape[3]);
    for (size_t d = 0; agree && d + 2 < result.sizes.size(); ++d) {
      agree = result.sizes.size() == product.size() ? unify(product[d], result.sizes[d])
                                                    : result.sizes[d].fixed();
    }
    const auto q = agree ? operand(inner.left, product, shape, false) : std::nullopt;
    const auto k = agree ? operand(inner.right, product, shape, true) : std::nullopt;
    const auto v = agree ? operand(outer.right, result.sizes, shape, false) : std::nullopt;
    if (!q || !k || !v) {
      return false;
    }
    AttentionMaker maker(graph_, shape[0], shape[1], queries, keys);
    const uint32_t made = addOps(maker, scores, top, shape);
    if (made == ir::kNone) {
      return false;
    }
    AttentionMaker::Settings settings;
    settings.headSize = head.hint;
    settings.valueSize = width.hint;
    Node attention;
    attention.elem = result.elem;
    attention.sizes = result.sizes;
    attention.strides = result.strides;
    attention.value = result.value;
    auto finished = maker.finish(*q, *k, *v, made, settings, std::move(attention));
    if (!finished) {
      return false;
    }
    graph_.nodes[id] = std::move(*finished);
    return true;
  }

  // If heads are transposed and then copied, the kernel stores its result in that order.
  void storeTransposed(NodeId id) {
    if (users_[id].size() != 1 || users_[id][0] == ir::kNone) {
      return;
    }
    const NodeId seen = users_[id][0];
    Node& attention = graph_.nodes[id];
    Node& view = graph_.nodes[seen];
    if (view.kind != NodeKind::kView || view.offset != 0 || users_[seen].size() != 1 ||
        users_[seen][0] == ir::kNone || view.sizes.size() != attention.sizes.size() ||
        !allFixed(view.sizes)) {
      return;
    }
    NodeId copy = users_[seen][0];
    std::vector<Size> wanted = node(copy).strides;
    const bool call = node(copy).kind == NodeKind::kCall;
    if (call) {
      copy = reshapeOf(copy);
      wanted = contiguousStrides(view.sizes);
    } else if (!is(copy, Core::kCast) || node(copy).sizes != view.sizes) {
      return;
    }
    if (copy == ir::kNone || isSeen(copy) || node(copy).elem != view.elem || !isDense(view.sizes, wanted)) {
      return;
    }
    std::vector<Size> strides(attention.sizes.size(), Size(0));
    std::vector<bool> taken(attention.sizes.size(), false);
    for (size_t d = 0; d < view.sizes.size(); ++d) {
      size_t from = 0;
      while (from < taken.size() && (taken[from] || attention.strides[from] != view.strides[d] ||
                                     attention.sizes[from] != view.sizes[d])) {
        ++from;
      }
      if (from == taken.size()) {
        return;
      }
      taken[from] = true;
      strides[from] = wanted[d];
    }
    if (strides.back() != 1 && attention.sizes.back() != 1) {
      return;
    }
    attention.strides = strides;
    view.strides = wanted;
    view.instruction = ir::kNone;
    Node& result = graph_.nodes[copy];
    if (call) {
      Node made;
      made.kind = NodeKind::kView;
      made.elem = view.elem;
      made.sizes = result.sizes;
      made.strides = contiguousStrides(result.sizes);
      made.args = {seen};
      made.value = result.value;
      result = std::move(made);
    } else {
      result.kind = NodeKind::kView;
      result.args = {seen};
      result.instruction = ir::kNone;
    }
  }

  // The only result of a call that reshapes its argument.
  NodeId reshapeOf(NodeId call) const {
    const ir::Instruction& ins = trace_.code[node(call).instruction];
    const bool reshape = trace_.operatorOf(ins) == ops::Operator::kReshape && node(call).args.size() == 1 &&
                         users_[call].size() == 1;
    if (!reshape) {
      return ir::kNone;
    }
    const NodeId result = users_[call][0];
    return node(result).kind == NodeKind::kResult && !node(result).open && allFixed(node(result).sizes) &&
                   node(result).strides == contiguousStrides(node(result).sizes)
               ? result
               : ir::kNone;
  }

  // By the outside, through views or not.
  bool isSeen(NodeId id) const {
    return std::any_of(users_[id].begin(), users_[id].end(), [&](NodeId user) {
      return user == ir::kNone || (node(user).kind == NodeKind::kView && isSeen(user)) ||
             (node(user).kind == NodeKind::kCall && mayShare(user));
    });
  }
  bool mayShare(NodeId call) const {
    return std::any_of(users_[call].begin(), users_[call].end(), [&](NodeId result) {
      return result != ir::kNone && node(result).kind == NodeKind::kResult && !node(result).fresh;
    });
  }

  TensorGraph& graph_;
  const ir::Trace& trace_;
  std::vector<std::vector<NodeId>> users_;  // kNone: the outside
};

}  // namespace

void findAttention(TensorGraph& graph, const ir::Trace& trace) { Finder(graph, trace).run(); }

}  // namespace kintsugi::passes
