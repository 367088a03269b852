#include "passes/fold_algebra.h"

#include <array>
#include <cmath>

#include "passes/rewrite_nodes.h"

namespace kintsugi::passes {

namespace {

class Folder {
 public:
  explicit Folder(TensorGraph& graph) : graph_(graph), uses_(graph.nodes.size(), 0) {
    for (const Node& node : graph.nodes) {
      for (const NodeId arg : node.args) {
        ++uses_[arg];
      }
    }
    for (const NodeId id : graph.outputs) {
      if (id != ir::kNone) {
        ++uses_[id];
      }
    }
  }

  void run(bool contract);

  // What rules work with: nodes that are there already.
  const Node& node(NodeId id) const { return graph_.nodes[id]; }
  bool isNumber(NodeId id, double number) const {
    return node(id).kind == NodeKind::kConst && isFloat(node(id).elem) && node(id).number == number;
  }
  // The argument of a node that computes `op` and has no other user.
  NodeId argumentOf(NodeId id, Core op) const {
    const Node& from = node(id);
    return from.kind == NodeKind::kPoint && from.op == op && single_[id] ? from.args[0] : ir::kNone;
  }
  NodeId constant(double number, const Node& like) {
    Node made;
    made.kind = NodeKind::kConst;
    made.elem = like.elem;
    made.number = number;
    return add(std::move(made));
  }
  // A constant with the sizes of `like`.
  NodeId point(Core op, const Node& like, NodeId a, NodeId b) {
    Node made = like;
    made.op = op;
    made.value = ir::kNone;
    made.args = b == ir::kNone ? std::vector<NodeId>{a} : std::vector<NodeId>{a, b};
    return add(std::move(made));
  }

 private:
  NodeId add(Node made) {
    single_.push_back(false);
    return graph_.add(std::move(made));
  }

  TensorGraph& graph_;
  std::vector<uint32_t> uses_;  // by old node
  std::vector<bool> single_;    // by new node: it has one user
};

// 1 + tanh(x) = 2 / (1 + exp(-2x)): no difference of numbers that are close to each other, and no second way
// for small x.
NodeId onePlusTanh(Folder& f, const Node& node) {
  for (const size_t k : {0, 1}) {
    const NodeId x = f.isNumber(node.args[1 - k], 1) ? f.argumentOf(node.args[k], Core::kTanh) : ir::kNone;
    if (x == ir::kNone || f.node(node.args[k]).sizes != node.sizes) {
      continue;
    }
    const Node like = f.node(node.args[k]);
    const NodeId power =
        f.point(Core::kExp, like, f.point(Core::kMul, like, x, f.constant(-2, like)), ir::kNone);
    return f.point(Core::kDiv, node, f.constant(2, like),
                   f.point(Core::kAdd, like, f.constant(1, like), power));
  }
  return ir::kNone;
}

// x / 2^n = x * 2^-n, bit by bit.
NodeId divideByPower(Folder& f, const Node& node) {
  const Node& by = f.node(node.args[1]);
  int exponent = 0;
  const bool power = by.kind == NodeKind::kConst && isFloat(node.elem) &&
                     std::abs(std::frexp(by.number, &exponent)) == 0.5 && std::abs(exponent) < 14;
  return power ? f.point(Core::kMul, node, node.args[0], f.constant(1 / by.number, by)) : ir::kNone;
}

struct Rule {
  Core op;
  bool exact;                                   // every bit is the same
  NodeId (*make)(Folder& f, const Node& node);  // kNone: it does not match
};
constexpr auto kRules = std::to_array<Rule>({
    {Core::kAdd, false, onePlusTanh},
    {Core::kDiv, true, divideByPower},
});

void Folder::run(bool contract) {
  rewriteNodes(graph_, [this, contract](NodeId old, Node& node) {
    NodeId made = ir::kNone;
    for (const Rule& rule : kRules) {
      if (made == ir::kNone && (rule.exact || contract) && node.kind == NodeKind::kPoint &&
          node.op == rule.op) {
        made = rule.make(*this, node);
      }
    }
    if (made == ir::kNone) {
      made = add(std::move(node));
    } else {
      graph_.nodes[made].value = node.value;
    }
    single_[made] = uses_[old] == 1;
    return made;
  });
}

}  // namespace

void foldAlgebra(TensorGraph& graph, bool contract) { Folder(graph).run(contract); }

}  // namespace kintsugi::passes
