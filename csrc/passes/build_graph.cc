#include "passes/build_graph.h"

#include <algorithm>
#include <array>

#include "ir/quiet_ops.h"
#include "ir/segments.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::TypeKind;
using ir::ValueId;

OperatorTraits guessTraits(std::string_view name) {
  OperatorTraits traits;
  traits.impure = name.substr(0, name.rfind('.')).ends_with('_');
  return traits;
}

// Operators whose results never share memory with their arguments.
constexpr auto kFresh = std::to_array<std::string_view>({
    "aten.linear.default",       "aten.addmm.default",
    "aten.mm.default",           "aten.bmm.default",
    "aten.baddbmm.default",      "aten.matmul.default",
    "aten.conv1d.default",       "aten.conv2d.default",
    "aten.convolution.default",  "aten.scaled_dot_product_attention.default",
    "aten.embedding.default",    "aten.cat.default",
    "aten.stack.default",        "aten.max_pool2d.default",
    "aten.avg_pool2d.default",   "aten.adaptive_avg_pool2d.default",
    "aten.index_select.default", "aten.gather.default",
    "aten.index.Tensor",         "aten.cumsum.default",
    "aten.pow.Tensor_Tensor",    "aten.sin.default",
    "aten.cos.default",          "aten.group_norm.default",
    "aten.layer_norm.default",   "aten.rms_norm.default",
    "aten.softmax.int",          "aten.mean.dim",
    "aten.sum.dim_IntList",
});

class Builder {
 public:
  Builder(const ir::Trace& trace, const GraphOptions& options, std::string& reason)
      : trace_(trace),
        options_(options),
        reason_(reason),
        nodeOf_(trace.values.size(), ir::kNone),
        decomposer_(trace, graph_, nodeOf_, options.strict) {}

  std::optional<TensorGraph> run() {
    for (const Instruction& ins : trace_.code) {
      const bool ok = ins.op == Op::kSegment      ? addInputs(ins)
                      : ins.op == Op::kSegmentEnd ? addOutputs(ins)
                      : ins.op == Op::kSetGrad    ? true
                      : ins.op == Op::kAten       ? addOperator(ins)
                                                  : refuse("it computes with sizes or numbers");
      if (!ok) {
        return std::nullopt;
      }
    }
    return std::move(graph_);
  }

 private:
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  const ir::TensorMeta* metaOf(ValueId value) const {
    const ir::Type& type = trace_.values[value];
    return type.kind == TypeKind::kTensor && trace_.hasFixedSizes(type) ? &trace_.metas[type.meta] : nullptr;
  }

  static Node nodeFor(NodeKind kind, const ir::TensorMeta& meta, ValueId value) {
    Node node;
    node.kind = kind;
    node.elem = meta.device == "cpu" ? elemOf(meta.dtype) : Elem::kOther;
    node.sizes = meta.sizes;
    node.strides = meta.strides.size() == meta.sizes.size() ? meta.strides : contiguousStrides(meta.sizes);
    node.value = value;
    return node;
  }

  NodeId bind(ValueId value, NodeId node) {
    aliased_.resize(graph_.nodes.size());
    return nodeOf_[value] = node;
  }

  bool addInputs(const Instruction& ins) {
    for (const Operand& o : trace_.listOf(trace_.operandsOf(ins)[0])) {
      const ir::TensorMeta* meta = metaOf(o.id);
      if (meta == nullptr) {
        return refuse("an input is a number, or a tensor whose sizes are not static");
      }
      graph_.inputs.push_back(bind(o.id, graph_.add(nodeFor(NodeKind::kInput, *meta, o.id))));
    }
    return true;
  }

  bool addOutputs(const Instruction& ins) {
    for (const Operand& o : trace_.listOf(trace_.operandsOf(ins)[0])) {
      if (o.isValue() && nodeOf_[o.id] == ir::kNone && trace_.values[o.id].kind != TypeKind::kNone) {
        return refuse("an output is not computed in it");
      }
      graph_.outputs.push_back(o.isValue() ? nodeOf_[o.id] : ir::kNone);
    }
    return true;
  }

  bool resultsAreStatic(const Instruction& ins) const {
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ValueId value = ins.firstResult + r;
      if (metaOf(value) == nullptr && trace_.values[value].kind != TypeKind::kNone) {
        return false;
      }
    }
    return true;
  }

  bool isImpure(const Instruction& ins, std::string_view name) const {
    if (ir::mayBeQuiet(trace_, ins)) {
      return !ir::isQuiet(trace_, ins);
    }
    return (options_.traits != nullptr ? options_.traits : guessTraits)(name).impure;
  }

  bool addOperator(const Instruction& ins) {
    const std::string& name = trace_.opNames[ins.opName];
    ++graph_.instructions;
    if (!resultsAreStatic(ins)) {
      return refuse("the sizes of what " + name + " returns are not static");
    }
    if (isImpure(ins, name)) {
      return addInPlace(ins, name) || refuse(name + " writes to a tensor or draws random numbers");
    }
    return addDecomposed(ins, name) || addViews(ins) || addCall(ins, name);
  }

  // The last node of a decomposition, made what the instruction returns.
  bool finish(NodeId made, const ir::TensorMeta& meta, ValueId value) {
    const Node wanted = nodeFor(NodeKind::kPoint, meta, value);
    const Node node = graph_.nodes[made];
    if (node.elem != wanted.elem || node.kind == NodeKind::kConst) {
      return false;
    }
    if (made < before_) {
      return finishIdentity(made, wanted);
    }
    if (node.sizes == wanted.sizes && isDense(wanted.sizes, wanted.strides)) {
      graph_.nodes[made].strides = wanted.strides;
      graph_.nodes[made].value = value;
      bind(value, made);
      return true;
    }
    // A reduction without the dimensions that it has reduced.
    if (elementCount(node.sizes) != elementCount(wanted.sizes) ||
        !isContiguous(wanted.sizes, wanted.strides)) {
      return false;
    }
    Node view = wanted;
    view.kind = NodeKind::kView;
    view.args = {made};
    bind(value, graph_.add(std::move(view)));
    return true;
  }

  // What comes out is a tensor that was there before. A copy that lies otherwise stays ATen's, which moves it
  // in tiles.
  bool finishIdentity(NodeId made, const Node& wanted) {
    const Node& node = graph_.nodes[made];
    if (node.sizes != wanted.sizes || node.strides != wanted.strides) {
      return false;
    }
    bind(wanted.value, made);
    return true;
  }

  bool decompose(const Instruction& ins, std::string_view name, const ir::TensorMeta& meta, ValueId value) {
    const Decomposition* row = findDecomposition(name);
    if (row == nullptr || (options_.strict && !row->exact)) {
      return false;
    }
    before_ = static_cast<NodeId>(graph_.nodes.size());
    decomposer_.start(ins, &meta);
    const NodeId made = decomposer_.failed() ? ir::kNone : row->make(decomposer_);
    if (decomposer_.failed() || made == ir::kNone || !finish(made, meta, value)) {
      graph_.nodes.resize(before_);
      return false;
    }
    return true;
  }

  bool addDecomposed(const Instruction& ins, std::string_view name) {
    if (ins.resultCount != 1 || metaOf(ins.firstResult) == nullptr) {
      return false;
    }
    return decompose(ins, name, *metaOf(ins.firstResult), ins.firstResult);
  }

  // `x.add_(y)` where nobody else sees the memory of x: from here on, x is another value.
  bool addInPlace(const Instruction& ins, std::string_view name) {
    const size_t dot = name.rfind('.');
    const auto operands = trace_.operandsOf(ins);
    if (dot == std::string_view::npos || dot == 0 || name[dot - 1] != '_' || ins.resultCount != 1 ||
        operands.empty() || !operands[0].isValue()) {
      return false;
    }
    const NodeId target = nodeOf_[operands[0].id];
    const ir::TensorMeta* meta = metaOf(operands[0].id);
    if (target == ir::kNone || meta == nullptr) {
      return false;
    }
    const NodeKind kind = graph_.nodes[target].kind;
    const bool own = kind == NodeKind::kPoint || kind == NodeKind::kReduce ||
                     (kind == NodeKind::kResult && graph_.nodes[target].fresh);
    aliased_.resize(graph_.nodes.size());
    if (!own || aliased_[target] || !sameElements(operands.subspan(1), graph_.nodes[target].elem)) {
      return false;
    }
    const std::string base = std::string(name.substr(0, dot - 1)) + std::string(name.substr(dot));
    if (!decompose(ins, base, *meta, ins.firstResult)) {
      return false;
    }
    const NodeId made = nodeOf_[ins.firstResult];
    std::replace(nodeOf_.begin(), nodeOf_.end(), target, made);
    return true;
  }

  // In place, the type of the result is not that of the computation unless all types are one.
  bool sameElements(std::span<const Operand> operands, Elem elem) const {
    return std::all_of(operands.begin(), operands.end(), [&](const Operand& o) {
      return !o.isValue() || (nodeOf_[o.id] != ir::kNone && graph_.nodes[nodeOf_[o.id]].elem == elem);
    });
  }

  bool addViews(const Instruction& ins) {
    const auto operands = trace_.operandsOf(ins);
    if (operands.empty() || !operands[0].isValue() || nodeOf_[operands[0].id] == ir::kNone) {
      return false;
    }
    const NodeId base = nodeOf_[operands[0].id];
    std::vector<int64_t> offsets;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      if (metaOf(ins.firstResult + r) == nullptr) {
        return false;
      }
    }
    if (!findViews(trace_, ins, graph_.nodes[base], offsets) || offsets.size() != ins.resultCount) {
      return false;
    }
    std::vector<ValueId> used;
    ir::collectValues(trace_, operands, used);
    std::vector<NodeId> args;
    for (const ValueId value : used) {
      if (nodeOf_[value] == ir::kNone) {
        return false;
      }
      args.push_back(nodeOf_[value]);
    }
    aliased_.resize(graph_.nodes.size());
    aliased_[base] = true;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ValueId value = ins.firstResult + r;
      Node node = nodeFor(NodeKind::kView, *metaOf(value), value);
      node.args = args;  // the base first
      node.offset = offsets[r];
      node.instruction = static_cast<uint32_t>(&ins - trace_.code.data());
      node.result = r;
      bind(value, graph_.add(std::move(node)));
    }
    return true;
  }

  bool addCall(const Instruction& ins, std::string_view name) {
    Node call;
    call.kind = NodeKind::kCall;
    call.instruction = static_cast<uint32_t>(&ins - trace_.code.data());
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    for (const ValueId value : used) {
      if (nodeOf_[value] == ir::kNone) {
        return refuse(std::string(name) + " takes a number that is not static");
      }
      call.args.push_back(nodeOf_[value]);
    }
    const bool fresh = std::find(kFresh.begin(), kFresh.end(), name) != kFresh.end();
    aliased_.resize(graph_.nodes.size());
    for (const NodeId arg : call.args) {
      aliased_[arg] = aliased_[arg] || !fresh;
    }
    const NodeId id = graph_.add(std::move(call));
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ValueId value = ins.firstResult + r;
      if (const ir::TensorMeta* meta = metaOf(value)) {
        Node node = nodeFor(NodeKind::kResult, *meta, value);
        node.args = {id};
        node.result = r;
        node.fresh = fresh;
        bind(value, graph_.add(std::move(node)));
      }
    }
    return true;
  }

  const ir::Trace& trace_;
  const GraphOptions& options_;
  std::string& reason_;
  TensorGraph graph_;
  std::vector<NodeId> nodeOf_;  // by value
  std::vector<bool> aliased_;   // by node: somebody else may see its memory
  Decomposer decomposer_;
  NodeId before_ = 0;  // nodes from here on belong to the present decomposition
};

}  // namespace

std::optional<TensorGraph> buildGraph(const ir::Trace& trace, const GraphOptions& options,
                                      std::string& reason) {
  return Builder(trace, options, reason).run();
}

}  // namespace kintsugi::passes
