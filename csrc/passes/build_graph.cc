#include "passes/build_graph.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ir/quiet_ops.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "ops/pseudo_operators.h"
#include "passes/attention.h"
#include "passes/in_place.h"
#include "passes/products.h"
#include "support/check.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::TypeKind;
using ir::ValueId;
using ops::Operator;

class Builder {
 public:
  Builder(const ir::Trace& trace, const GraphOptions& options, std::string& reason)
      : trace_(trace),
        options_(options),
        reason_(reason),
        nodeOf_(trace.values.size(), ir::kNone),
        memory_(graph_, nodeOf_),
        decomposer_(trace, graph_, nodeOf_, options),
        inPlace_({trace, graph_, nodeOf_, memory_, decomposer_, options}) {}

  std::optional<TensorGraph> run() {
    findUnused();
    for (const Instruction& ins : trace_.code) {
      const bool ok = ins.op == Op::kSegment      ? addInputs(ins)
                      : ins.op == Op::kSegmentEnd ? addOutputs(ins)
                      : ins.op == Op::kSetGrad    ? true
                      : ins.op == Op::kAten       ? addOperator(ins)
                      : ins.op == Op::kSize       ? addSize(ins)
                      : ins.op == Op::kGuardMeta  ? addCheck(ins)
                                                  : addCall(ins);
      if (!ok) {
        return std::nullopt;
      }
    }
    memory_.finish();
    noteRelied();
    return std::move(graph_);
  }

 private:
  // Binding the result of a call checks it against what the graph takes for its sizes.
  void noteRelied() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      for (const NodeId arg : graph_.nodes[id].args) {
        Node& used = graph_.nodes[arg];
        used.mustRun = used.mustRun || (used.kind == NodeKind::kResult && used.open);
      }
    }
  }

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool isOpen(ValueId value) const { return !trace_.hasFixedSizes(trace_.values[value]); }

  const ir::TensorDesc* metaOf(ValueId value) const { return passes::metaOf(trace_, value); }

  // The node with the sizes that were seen while recording.
  static Node nodeFor(NodeKind kind, const ir::TensorDesc& meta, ValueId value) {
    Node node;
    node.kind = kind;
    node.elem = compilesFor(meta.device) ? elemOf(meta.dtype) : Elem::kOther;
    node.sizes = fixedSizes(sizeHints(meta));
    node.strides = fixedSizes(strideHints(meta));
    node.value = value;
    return node;
  }

  // A node whose sizes are not computed from others: an input or the result of a call. Sizes that vary become
  // symbols.
  Node leafFor(NodeKind kind, const ir::TensorDesc& meta, ValueId value) {
    Node node = nodeFor(kind, meta, value);
    if (!isOpen(value)) {
      return node;
    }
    const std::vector<int64_t>& known = trace_.metas[trace_.values[value].meta].sizes;
    const bool contiguous = passes::isContiguous(node.sizes, node.strides);
    for (size_t d = 0; d < known.size(); ++d) {
      if (known[d] == ir::kAnySize && node.sizes[d].hint > 1) {
        node.sizes[d] = sizeTable().symbol(node.sizes[d].hint, true);
      }
      if (!contiguous && node.strides[d].hint > 1) {
        node.strides[d] = sizeTable().symbol(node.strides[d].hint, false);
      }
    }
    node.strides = contiguous ? contiguousStrides(node.sizes) : node.strides;
    node.open = true;
    node.packed = contiguous;
    return node;
  }

  // An input that only calls take: a number, or a tensor of unknown metadata.
  Node opaque(NodeKind kind, ValueId value) const {
    const TypeKind type = trace_.values[value].kind;
    Node node;
    node.kind = kind;
    node.elem = type == TypeKind::kFloat ? Elem::kF64 : type == TypeKind::kInt ? Elem::kI64 : Elem::kOther;
    node.value = value;
    return node;
  }

  NodeId bind(ValueId value, NodeId node) { return nodeOf_[value] = node; }

  bool addInputs(const Instruction& ins) {
    for (const Operand& o : trace_.listOf(trace_.operandsOf(ins)[0])) {
      const ir::TensorDesc* meta = metaOf(o.id);
      Node node = meta != nullptr ? leafFor(NodeKind::kInput, *meta, o.id) : opaque(NodeKind::kInput, o.id);
      graph_.inputs.push_back(bind(o.id, graph_.add(std::move(node))));
      if (trace_.values[o.id].kind == TypeKind::kTensor) {
        memory_.setTensor(o.id, nodeOf_[o.id]);
      }
    }
    return true;
  }

  bool addOutputs(const Instruction& ins) {
    for (const Operand& o : trace_.listOf(trace_.operandsOf(ins)[0])) {
      if (o.isValue() && nodeOf_[o.id] == ir::kNone && trace_.values[o.id].kind != TypeKind::kNone) {
        return refuse("an output is not computed in it");
      }
      const NodeId tensor = o.isValue() ? memory_.tensorOf(o.id) : ir::kNone;
      graph_.outputs.push_back(tensor != ir::kNone ? tensor : o.isValue() ? nodeOf_[o.id] : ir::kNone);
    }
    return true;
  }

  bool isImpure(const Instruction& ins, std::string_view name) const {
    return ir::isImpure(trace_, ins, options_.traits(name).impure);
  }

  bool addOperator(const Instruction& ins) {
    const std::string& name = trace_.opNames[ins.opName];
    ++graph_.instructions;
    if (isImpure(ins, name)) {
      return inPlace_.add(ins, name) || refuse(name + " writes to a tensor or draws random numbers");
    }
    if (mayOnlyRaise(ins)) {
      return addCall(ins);
    }
    if (takesStale(ins)) {
      return addViews(ins) || refuse(name + " reads memory of which a part has been written");
    }
    const Operator op = ops::find(name);
    return (!options_.callsOnly &&
            (addDecomposed(ins, op) || inPlace_.addForeach(ins, name) || inPlace_.addLike(ins, name) ||
             addJoin(ins, op) || addProduct(ins, op) || addAttention(ins, op) || addViews(ins))) ||
           addCall(ins);
  }

  // Which results nothing needs that can be seen.
  void findUnused() {
    std::vector<bool> needed(trace_.values.size(), false);
    unused_.assign(trace_.code.size(), false);
    for (size_t at = trace_.code.size(); at-- > 0;) {
      const Instruction& ins = trace_.code[at];
      bool stays = ins.op != Op::kAten || isImpure(ins, trace_.opNames[ins.opName]);
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        stays = stays || needed[ins.firstResult + r];
      }
      unused_[at] = !stays;
      std::vector<ValueId> used;
      if (stays) {
        ir::collectValues(trace_, trace_.operandsOf(ins), used);
      }
      for (const ValueId value : used) {
        needed[value] = true;
      }
    }
  }

  // Are the results unused, but the call may raise in a run? That is so for an operator that the registry
  // does not know, for one that checks contents (an index), and where sizes vary.
  bool mayOnlyRaise(const Instruction& ins) const {
    if (!unused_[static_cast<size_t>(&ins - trace_.code.data())]) {
      return false;
    }
    const Operator op = trace_.operatorOf(ins);
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    return op == Operator::kUnknown || ops::has(op, ops::Trait::kRaisesOfData) ||
           std::any_of(used.begin(), used.end(), [&](ValueId value) {
             return trace_.values[value].kind == TypeKind::kTensor && isOpen(value);
           });
  }

  bool takesStale(const Instruction& ins) const {
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    return std::any_of(used.begin(), used.end(), [&](ValueId value) { return memory_.isStale(value); });
  }

  // The product is a node or a call, what is added to it a node of its own.
  bool addProduct(const Instruction& ins, Operator op) {
    const ops::ProductOperands& row = ops::infoOf(op).product;
    const auto operands = trace_.operandsOf(ins);
    const bool plain = options_.products && row.operands != 0 && operands.size() >= row.operands &&
                       std::all_of(operands.begin() + row.operands, operands.end(), [](const Operand& o) {
                         return o.kind == ir::OperandKind::kInt && o.i == 1;
                       });
    const ir::TensorDesc* meta = plain && ins.resultCount == 1 ? metaOf(ins.firstResult) : nullptr;
    if (meta == nullptr) {
      return false;
    }
    before_ = static_cast<NodeId>(graph_.nodes.size());
    decomposer_.start(ins, meta);
    const NodeId left = decomposer_.tensor(row.left), right = decomposer_.tensor(row.right);
    const auto form = decomposer_.failed() ? std::nullopt
                                           : productForm(graph_.nodes[left], graph_.nodes[right], row.byRows);
    const bool tiles = form && options_.tiles && !options_.strict && isTilingProfitable(*form);
    if (!form || (form->batched && !tiles)) {
      return false;
    }
    Node result;
    result.kind = NodeKind::kResult;
    result.elem = Elem::kF32;
    result.fresh = true;
    result.sizes = graph_.nodes[left].sizes;
    const size_t columns = graph_.nodes[right].sizes.size() - (row.byRows ? 2 : 1);
    result.sizes.back() = graph_.nodes[right].sizes[columns];
    result.strides = contiguousStrides(result.sizes);
    if (tiles) {
      result.kind = NodeKind::kProduct;
      result.byRows = row.byRows;
      result.args = {left, right};
    } else {
      Node call;
      call.kind = NodeKind::kCall;
      call.product = true;
      call.byRows = row.byRows;
      call.instruction = static_cast<uint32_t>(&ins - trace_.code.data());
      call.args = {left, right};
      result.args = {graph_.add(std::move(call))};
    }
    const size_t madeAt = graph_.nodes.size();
    const bool added = row.added >= 0 && !decomposer_.isNone(static_cast<size_t>(row.added));
    result.value = added ? ir::kNone : ins.firstResult;
    const bool fits =
        hintsOf(result.sizes) == sizeHints(*meta) && hintsOf(result.strides) == strideHints(*meta);
    NodeId made = graph_.add(std::move(result));
    if (added) {
      const NodeId other = decomposer_.as(static_cast<size_t>(row.added), Elem::kF32);
      made = options_.strict ? ir::kNone : decomposer_.point(Core::kAdd, Elem::kF32, {made, other});
    }
    if (!fits || decomposer_.failed() || made == ir::kNone || elemOf(meta->dtype) != Elem::kF32 ||
        graph_.nodes[made].sizes != graph_.nodes[madeAt].sizes) {
      graph_.nodes.resize(before_);
      return false;
    }
    graph_.nodes[made].value = ins.firstResult;
    bind(ins.firstResult, made);
    return true;
  }

  // Attention as a node of its own.
  bool addAttention(const Instruction& ins, Operator op) {
    const ops::AttentionOperands& row = ops::infoOf(op).attention;
    const bool wanted = options_.attention && !options_.strict && row.mask >= 0;
    const ir::TensorDesc* meta = wanted && ins.resultCount == 1 ? metaOf(ins.firstResult) : nullptr;
    const auto operands = trace_.operandsOf(ins);
    const auto at = [&](int8_t k) -> const Operand* {
      const auto place = static_cast<size_t>(k);
      return k >= 0 && place < operands.size() && operands[place].kind != ir::OperandKind::kNone
                 ? &operands[place]
                 : nullptr;
    };
    if (meta == nullptr || takesNumbers(ins)) {
      return false;
    }
    AttentionCall call;
    decomposer_.start(ins, meta);
    call.query = decomposer_.tensor(0);
    call.key = decomposer_.tensor(1);
    call.value = decomposer_.tensor(2);
    call.mask = at(row.mask) != nullptr ? decomposer_.tensor(static_cast<size_t>(row.mask)) : ir::kNone;
    call.causal = at(row.causal) != nullptr && at(row.causal)->i != 0;
    call.grouped = at(row.grouped) != nullptr && at(row.grouped)->i != 0;
    if (at(row.scale) != nullptr) {
      call.scale = decomposer_.number(static_cast<size_t>(row.scale));
    }
    const double dropped =
        at(row.dropout) != nullptr ? decomposer_.number(static_cast<size_t>(row.dropout), 1) : 0;
    const bool both = call.causal && call.mask != ir::kNone;  // an error
    if (decomposer_.failed() || dropped != 0 || both) {
      return false;
    }
    Node result;
    result.elem = elemOf(meta->dtype);
    result.value = ins.firstResult;
    result.sizes = graph_.nodes[call.query].sizes;
    result.sizes.back() = graph_.nodes[call.value].sizes.back();
    if (!findAttentionLayout(*meta, result)) {
      return false;
    }
    std::optional<Node> made = makeAttention(graph_, call, std::move(result));
    if (!made) {
      return false;
    }
    bind(ins.firstResult, graph_.add(std::move(*made)));
    return true;
  }

  // ATen's kernel returns [batch, query, head, element], seen otherwise; what is made of products is
  // contiguous.
  static bool findAttentionLayout(const ir::TensorDesc& meta, Node& result) {
    const std::vector<int64_t> seen = strideHints(meta);
    if (hintsOf(result.sizes) != sizeHints(meta)) {
      return false;
    }
    std::vector<Size> sizes = result.sizes;
    result.strides = contiguousStrides(sizes);
    if (hintsOf(result.strides) == seen) {
      return true;
    }
    if (sizes.size() == 4) {
      std::swap(sizes[1], sizes[2]);
      result.strides = contiguousStrides(sizes);
      std::swap(result.strides[1], result.strides[2]);
    }
    return hintsOf(result.strides) == seen;
  }

  // Binds the last node of a decomposition to the instruction's result.
  bool finish(NodeId made, const ir::TensorDesc& meta, ValueId value) {
    Node wanted = nodeFor(NodeKind::kPoint, meta, value);
    const Node node = graph_.nodes[made];
    if (node.elem != wanted.elem || node.kind == NodeKind::kConst || !inferResultSizes(node, wanted)) {
      return false;
    }
    if (made < before_) {
      return finishIdentity(made, wanted);
    }
    if (node.kind == NodeKind::kView && node.sizes == wanted.sizes && node.strides != wanted.strides) {
      return false;
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

  // Sizes that vary are inferred from those of the arguments. Contiguous arguments give a contiguous result
  // for all sizes; for other layouts ATen's choice is not known, and the segment is refused.
  bool inferResultSizes(const Node& node, Node& wanted) const {
    if (allFixed(node.sizes)) {
      return true;
    }
    const size_t rank = wanted.sizes.size();
    const std::vector<int64_t> seen = hintsOf(wanted.sizes);
    if (rank > node.sizes.size() || wanted.strides != contiguousStrides(wanted.sizes)) {
      return false;
    }
    wanted.sizes.assign(node.sizes.begin(), node.sizes.begin() + static_cast<std::ptrdiff_t>(rank));
    wanted.strides = contiguousStrides(wanted.sizes);
    return hintsOf(wanted.sizes) == seen &&
           std::all_of(node.sizes.begin() + static_cast<std::ptrdiff_t>(rank), node.sizes.end(),
                       [](const Size& size) { return size == 1; });
  }

  // Numbers that differ from run to run are no constants of a kernel.
  bool takesNumbers(const Instruction& ins) const {
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    return std::any_of(used.begin(), used.end(),
                       [&](ValueId value) { return trace_.values[value].kind != TypeKind::kTensor; });
  }

  // Is each use of the result an operation of its size that is decomposed?
  bool feedsComputations(const Instruction& ins, const ir::TensorDesc& meta) const {
    for (const Instruction& user : trace_.code) {
      std::vector<ValueId> used;
      ir::collectValues(trace_, trace_.operandsOf(user), used);
      if (std::find(used.begin(), used.end(), ins.firstResult) == used.end()) {
        continue;
      }
      const ir::TensorDesc* made = user.resultCount == 1 ? metaOf(user.firstResult) : nullptr;
      if (user.op != Op::kAten || made == nullptr || sizeHints(*made) != sizeHints(meta) ||
          decompositionOf(trace_.operatorOf(user)) == nullptr) {
        return false;
      }
    }
    return true;
  }

  // An instruction with sizes that vary among its operands.
  bool argumentsAreContiguous(const Instruction& ins) const {
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    const auto fixed = [&](ValueId value) {
      const NodeId node = nodeOf_[value];
      return node != ir::kNone && allFixed(graph_.nodes[node].sizes);
    };
    if (std::all_of(used.begin(), used.end(), fixed) && !isOpen(ins.firstResult)) {
      return true;
    }
    return std::all_of(used.begin(), used.end(), [&](ValueId value) {
      const NodeId node = nodeOf_[value];
      return node != ir::kNone && graph_.nodes[node].elem != Elem::kOther &&
             graph_.nodes[node].strides == contiguousStrides(graph_.nodes[node].sizes);
    });
  }

  // An operator whose result is its argument, or a copy with another layout.
  bool finishIdentity(NodeId made, const Node& wanted) {
    const Node& node = graph_.nodes[made];
    if (node.sizes != wanted.sizes) {
      return false;
    }
    if (node.strides == wanted.strides) {
      bind(wanted.value, made);
      return true;
    }
    if (!isMovedWell(node, wanted)) {
      return false;
    }
    Node copy = wanted;
    copy.kind = NodeKind::kPoint;
    copy.op = Core::kCast;
    copy.args = {made};
    bind(wanted.value, graph_.add(std::move(copy)));
    return true;
  }

  // Both are contiguous along the same dimension, or along two that can be transposed in squares. Otherwise
  // ATen copies, as it does where runs of elements use less than half of a cache line.
  static bool isMovedWell(const Node& from, const Node& to) {
    const int64_t fewest = target().costs.narrowRun;
    if (from.elem != Elem::kF32 || !allFixed(from.sizes) || !allFixed(from.strides) ||
        !isDense(to.sizes, to.strides)) {
      return false;
    }
    bool same = false, first = false, second = false;
    for (size_t d = 0; d < to.sizes.size(); ++d) {
      const bool fromUnit = from.strides[d] == 1, toUnit = to.strides[d] == 1;
      const bool enough = to.sizes[d].hint >= fewest;
      same = same || (fromUnit && toUnit && enough);
      first = first || (fromUnit && enough);
      second = second || (toUnit && enough);
    }
    return same || (first && second);
  }

  bool decompose(const Instruction& ins, const Decomposition* row, const ir::TensorDesc& meta,
                 ValueId value) {
    if (row == nullptr || (options_.strict && !row->exact) || !argumentsAreContiguous(ins)) {
      return false;
    }
    if ((takesNumbers(ins) && !row->numbers) || (row->onlyFused && !feedsComputations(ins, meta))) {
      return false;
    }
    before_ = static_cast<NodeId>(graph_.nodes.size());
    decomposer_.start(ins, &meta);
    const NodeId made = decomposer_.failed() ? ir::kNone : row->run(decomposer_);
    if (decomposer_.failed() || made == ir::kNone || !finish(made, meta, value)) {
      graph_.nodes.resize(before_);
      return false;
    }
    return true;
  }

  bool addDecomposed(const Instruction& ins, Operator op) {
    if (ins.resultCount != 1 || metaOf(ins.firstResult) == nullptr) {
      return false;
    }
    if (!decompose(ins, decompositionOf(op), *metaOf(ins.firstResult), ins.firstResult)) {
      return false;
    }
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    for (const ValueId value : used) {
      if (nodeOf_[value] == nodeOf_[ins.firstResult]) {
        memory_.setAlias(ins.firstResult, value);
      }
    }
    return true;
  }

  bool addJoin(const Instruction& ins, Operator op) {
    const Decomposition* row = joinOf(op);
    const ir::TensorDesc* meta = ins.resultCount == 1 ? metaOf(ins.firstResult) : nullptr;
    if (row == nullptr || meta == nullptr || !decompose(ins, row, *meta, ins.firstResult)) {
      return false;
    }
    graph_.nodes[nodeOf_[ins.firstResult]].instruction = static_cast<uint32_t>(&ins - trace_.code.data());
    return true;
  }

  bool addViews(const Instruction& ins) {
    const auto operands = trace_.operandsOf(ins);
    if (operands.empty() || !operands[0].isValue() || nodeOf_[operands[0].id] == ir::kNone) {
      return false;
    }
    const ValueId viewed = operands[0].id;
    const NodeId tensor = memory_.tensorOf(viewed);
    const bool written = memory_.isWritten(viewed);
    const NodeId base = tensor != ir::kNone ? tensor : nodeOf_[viewed];
    if (metaOf(viewed) == nullptr || takesNumbers(ins)) {
      return false;  // a call, whose result each run looks at
    }
    std::vector<int64_t> offsets;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      if (metaOf(ins.firstResult + r) == nullptr) {
        return false;
      }
    }
    if (!findViews(trace_, ins, graph_.nodes[base], offsets) || offsets.size() != ins.resultCount ||
        (written && !memory_.isStale(viewed) &&
         graph_.nodes[nodeOf_[viewed]].strides != graph_.nodes[tensor].strides)) {
      return false;
    }
    std::vector<ValueId> used;
    ir::collectValues(trace_, operands, used);
    std::vector<NodeId> args;
    for (const ValueId value : used) {
      if (nodeOf_[value] == ir::kNone) {
        return false;
      }
      args.push_back(args.empty() ? base : nodeOf_[value]);
    }
    memory_.noteView(base);
    // No rows: in a run with some, there are more results.
    Node& whole = graph_.nodes[base];
    whole.mustRun = whole.mustRun || (ins.resultCount == 0 && whole.kind == NodeKind::kResult);
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ValueId value = ins.firstResult + r;
      Node node = nodeFor(NodeKind::kView, *metaOf(value), value);
      node.args = args;  // the base first
      node.offset = offsets[r];
      node.instruction = static_cast<uint32_t>(&ins - trace_.code.data());
      node.result = r;
      Node content = node;
      bind(value, graph_.add(std::move(node)));
      if (tensor == ir::kNone) {
        continue;
      }
      memory_.setTensor(value, nodeOf_[value]);
      if (memory_.isStale(viewed)) {
        memory_.setStale(value);
      } else if (written) {
        content.args = {nodeOf_[viewed]};
        content.instruction = content.value = ir::kNone;
        bind(value, graph_.add(std::move(content)));
      }
    }
    return true;
  }

  // A computed result has the dtype and sizes of its type. The result of a call is checked in each run, even
  // if nothing else uses it.
  bool addCheck(const Instruction& ins) {
    const NodeId id = nodeOf_[trace_.operandsOf(ins)[0].id];
    if (id == ir::kNone || graph_.nodes[id].elem == Elem::kOther || options_.callsOnly) {
      return refuse("a guard of something else than a tensor that is computed in it");
    }
    graph_.nodes[id].checked = graph_.nodes[id].kind == NodeKind::kResult;
    return true;
  }

  // A size that follows from those of the inputs needs no tensor.
  bool addSize(const Instruction& ins) {
    const auto operands = trace_.operandsOf(ins);
    const NodeId tensor = operands[0].isValue() ? nodeOf_[operands[0].id] : ir::kNone;
    if (tensor == ir::kNone || operands[1].kind != ir::OperandKind::kInt) {
      return refuse("a size of something else than a tensor");
    }
    const auto dim = static_cast<size_t>(operands[1].i);
    if (metaOf(operands[0].id) == nullptr || dim >= graph_.nodes[tensor].sizes.size()) {
      return addCall(ins);
    }
    Node call;
    call.kind = NodeKind::kCall;
    call.instruction = static_cast<uint32_t>(&ins - trace_.code.data());
    call.sizes = {graph_.nodes[tensor].sizes[dim]};
    addResults(ins, graph_.add(std::move(call)), true);
    return true;
  }

  bool addCall(const Instruction& ins) {
    Node call;
    call.kind = NodeKind::kCall;
    call.metadataOnly = readsMetadataOnly(trace_, ins);
    call.instruction = static_cast<uint32_t>(&ins - trace_.code.data());
    call.mustRun = ins.op == Op::kAten && mayOnlyRaise(ins);
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    for (const ValueId value : used) {
      if (nodeOf_[value] == ir::kNone) {
        return refuse("something is used that is not computed in it");
      }
      call.args.push_back(nodeOf_[value]);
    }
    const bool fresh = ins.op != Op::kAten || isFreshOperator(trace_.opNames[ins.opName]);
    if (!fresh && !surelyNew(ins)) {
      for (const NodeId arg : call.args) {
        memory_.noteView(arg);
      }
      for (const ValueId value : used) {
        if (memory_.isWritten(value)) {
          return refuse("a call that may return a view takes what has been written");
        }
        memory_.noteEscape(value);
      }
    }
    addMask(ins, call.args);
    const NodeId made = graph_.add(std::move(call));
    addResults(ins, made, fresh);
    for (NodeId id = made + 1; id < graph_.nodes.size(); ++id) {
      graph_.nodes[id].unaliased = fresh || (ins.op == Op::kAten && surelyNew(ins));
    }
    return true;
  }

  bool surelyNew(const Instruction& ins) const { return options_.traits(trace_.opNames[ins.opName]).fresh; }

  // Attention turns a mask of bools into one of 0 and -infinity. Done here, that is once for all layers.
  void addMask(const Instruction& ins, std::vector<NodeId>& args) {
    const int8_t at = ops::infoOf(trace_.operatorOf(ins)).attention.mask;
    const auto operands = trace_.operandsOf(ins);
    if (at < 0) return;
    const auto place = static_cast<size_t>(at);
    if (operands.size() <= place || !operands[place].isValue() || args.size() != place + 1) return;
    const Node& query = graph_.nodes[args[0]];
    const Node& mask = graph_.nodes[args[place]];
    if (mask.elem != Elem::kBool || !isFloat(query.elem) || mask.strides != contiguousStrides(mask.sizes)) {
      return;
    }
    auto constant = [&](double number) {
      Node node;
      node.kind = NodeKind::kConst;
      node.elem = query.elem;
      node.number = number;
      return node;
    };
    Node select;
    select.kind = NodeKind::kPoint;
    select.op = Core::kSelect;
    select.elem = query.elem;
    select.sizes = mask.sizes;
    select.strides = mask.strides;
    const Node zero = constant(0), never = constant(-std::numeric_limits<double>::infinity());
    select.args = {args[place], graph_.add(zero), graph_.add(never)};
    args[place] = graph_.add(std::move(select));
  }

  void addResults(const Instruction& ins, NodeId call, bool fresh) {
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ValueId value = ins.firstResult + r;
      const ir::TensorDesc* meta = metaOf(value);
      if (trace_.values[value].kind == TypeKind::kNone) {
        continue;
      }
      Node node =
          meta != nullptr ? leafFor(NodeKind::kResult, *meta, value) : opaque(NodeKind::kResult, value);
      node.args = {call};
      node.result = r;
      node.fresh = fresh;
      bind(value, graph_.add(std::move(node)));
    }
  }

  const ir::Trace& trace_;
  const GraphOptions& options_;
  std::string& reason_;
  TensorGraph graph_;
  std::vector<NodeId> nodeOf_;  // by value
  std::vector<bool> unused_;    // by instruction
  WriteTracker memory_;
  Decomposer decomposer_;
  InPlaceBuilder inPlace_;
  NodeId before_ = 0;  // nodes from here on belong to the present decomposition
};

}  // namespace

// What is run with autograd, and what computes derivatives (passes/gradient_builder.h).
bool isFreshOperator(std::string_view name) {
  return ops::infoOf(name).has(ops::Trait::kPure) || ops::isPseudo(name) || ops::isBackward(name);
}

bool readsMetadataOnly(const ir::Trace& trace, const ir::Instruction& instruction) {
  return ops::has(trace.operatorOf(instruction), ops::Trait::kByForm);
}

const ir::TensorDesc* metaOf(const ir::Trace& trace, ValueId value) {
  const ir::Type& type = trace.values[value];
  if (type.kind != TypeKind::kTensor || type.meta == ir::kNone) {
    return nullptr;
  }
  const ir::TensorDesc& meta = trace.metas[type.meta];
  return meta.seen() != nullptr ? &meta : nullptr;
}

const std::vector<int64_t>& sizeHints(const ir::TensorDesc& meta) { return meta.seen()->sizes; }

std::vector<int64_t> strideHints(const ir::TensorDesc& meta) {
  const ir::Strided<int64_t>& seen = *meta.seen();
  return seen.strides.size() == seen.sizes.size() ? seen.strides : ir::packedStrides(seen.sizes);
}

std::optional<TensorGraph> buildGraph(const ir::Trace& trace, const GraphOptions& options,
                                      std::string& reason) {
  return Builder(trace, options, reason).run();
}

}  // namespace kintsugi::passes
