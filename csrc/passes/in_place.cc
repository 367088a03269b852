#include "passes/in_place.h"

#include <algorithm>

namespace kintsugi::passes {

using ir::Instruction;
using ir::Operand;
using ir::TypeKind;
using ir::ValueId;
using ops::Trait;

namespace {

// Was the value made in the segment, by an operator that surely allocates?
bool isOwn(const Node& node) {
  return isCore(node) || node.kind == NodeKind::kJoin ||
         (node.kind == NodeKind::kResult && (node.fresh || node.unaliased));
}

// Broadcasts the node to a size. False: its size does not fit.
bool spread(Node& node, const std::vector<Size>& sizes) {
  if (node.sizes == sizes) {
    node.sizes = sizes;
    return true;
  }
  if (node.op != Core::kCast || node.sizes.size() > sizes.size()) {
    return false;
  }
  const size_t shift = sizes.size() - node.sizes.size();
  for (size_t d = 0; d < node.sizes.size(); ++d) {
    const Size have = node.sizes[d], want = sizes[d + shift];
    if (have != 1 && have != want && (have.hint != want.hint || !sizeTable().require(have, want, kZero))) {
      return false;
    }
  }
  node.sizes = sizes;
  return true;
}

// Has the node the layout of `like`? Where sizes vary, each run checks that they are equal.
bool hasLayoutOf(const Node& node, const Node& like) {
  const bool contiguous = node.strides == contiguousStrides(node.sizes);
  if (node.sizes.size() != like.sizes.size() ||
      contiguous != (like.strides == contiguousStrides(like.sizes))) {
    return false;
  }
  for (size_t d = 0; d < node.sizes.size(); ++d) {
    const Size a = node.sizes[d], b = like.sizes[d];
    if (a != b && (a.hint != b.hint || !sizeTable().require(a, b, kZero))) {
      return false;
    }
  }
  return contiguous || node.strides == like.strides;
}

}  // namespace

bool InPlaceBuilder::add(const Instruction& ins, std::string_view name) {
  const auto operands = trace_.operandsOf(ins);
  if (const std::optional<ForeachOperator> many = findForeach(name)) {
    return many->inPlace && addToEach(ins, *many);
  }
  if (!ops::isInPlace(name) || ins.resultCount != 1 || operands.empty() || !operands[0].isValue()) {
    return false;
  }
  if (!writeTo(operands[0].id, ops::formOf(name), operands)) {
    return false;
  }
  nodeOf_[ins.firstResult] = nodeOf_[operands[0].id];
  memory_.setAlias(ins.firstResult, operands[0].id);
  return true;
}

// The result of an in-place operator becomes the content of its first operand.
bool InPlaceBuilder::writeTo(ValueId target, ops::Operator op, std::span<const Operand> operands) {
  const NodeId content = nodeOf_[target], tensor = memory_.tensorOf(target);
  const Decomposition* row = decompositionOf(op);
  if (content == ir::kNone || row == nullptr) {
    return false;
  }
  const bool reads = !ops::has(op, Trait::kStoresOnly);
  for (size_t k = reads ? 0 : 1; k < operands.size(); ++k) {
    if (operands[k].isValue() && memory_.isStale(operands[k].id)) {
      return false;
    }
  }
  for (const Operand& o : operands.subspan(1)) {
    if (o.isValue() && trace_.values[o.id].kind == TypeKind::kTensor && memory_.mayOverlap(target, o.id)) {
      return false;
    }
  }
  const Node like = graph_.nodes[tensor != ir::kNone ? tensor : content];
  // A mask is no part of what is computed.
  const bool masked = ops::has(op, Trait::kMasked);
  if (tensor == ir::kNone && !isDense(like.sizes, like.strides)) {
    return false;  // a new tensor is dense, and could not have the strides of the program's tensor
  }
  if (!mayWrite(target) || (reads && !masked && !sameElements(operands.subspan(1), like.elem))) {
    return false;
  }
  const NodeId made = compute(*row, operands, like);
  if (made == ir::kNone) {
    return false;
  }
  if (tensor != ir::kNone) {
    memory_.write(target, made);
  } else {
    std::replace(nodeOf_.begin(), nodeOf_.end(), content, made);
  }
  return true;
}

// A new node with the layout of another one, or a contiguous one if that has gaps. kNone: it is not possible.
NodeId InPlaceBuilder::compute(const Decomposition& row, std::span<const Operand> operands,
                               const Node& like) {
  const bool numbers = std::any_of(operands.begin(), operands.end(), [&](const Operand& o) {
    return o.isValue() && trace_.values[o.id].kind != TypeKind::kTensor;
  });
  if ((options_.strict && !row.exact) || (numbers && !row.numbers)) {
    return ir::kNone;
  }
  const auto before = static_cast<NodeId>(graph_.nodes.size());
  decomposer_.start(operands, like);
  NodeId made = decomposer_.failed() ? ir::kNone : row.run(decomposer_);
  if (made != ir::kNone && !decomposer_.failed() &&
      (made < before || graph_.nodes[made].kind != NodeKind::kPoint)) {
    made = decomposer_.point(Core::kCast, like.elem, {made});
  }
  if (made == ir::kNone || decomposer_.failed() || graph_.nodes[made].elem != like.elem ||
      !spread(graph_.nodes[made], like.sizes)) {
    graph_.nodes.resize(before);
    return ir::kNone;
  }
  Node& node = graph_.nodes[made];
  node.strides = isDense(like.sizes, like.strides) ? like.strides : contiguousStrides(like.sizes);
  return made;
}

// The operands for one element of the lists.
std::vector<Operand> InPlaceBuilder::operandsAt(std::span<const Operand> operands, size_t k) const {
  std::vector<Operand> out;
  for (const Operand& o : operands) {
    out.push_back(o.kind == ir::OperandKind::kList ? trace_.listOf(o)[k] : o);
  }
  return out;
}

// Are all lists among the operands as long as the first one?
std::optional<size_t> InPlaceBuilder::listLength(std::span<const Operand> operands) const {
  if (operands.empty() || operands[0].kind != ir::OperandKind::kList) {
    return std::nullopt;
  }
  const size_t count = operands[0].count;
  const bool same = std::all_of(operands.begin(), operands.end(), [&](const Operand& o) {
    return o.kind != ir::OperandKind::kList || o.count == count;
  });
  return same ? std::optional(count) : std::nullopt;
}

// `_foreach_add_([x, y], ...)`: one after the other.
bool InPlaceBuilder::addToEach(const Instruction& ins, const ForeachOperator& many) {
  const auto operands = trace_.operandsOf(ins);
  const std::optional<size_t> count = listLength(operands);
  for (size_t k = 0; count && k < *count; ++k) {
    const std::vector<Operand> at = operandsAt(operands, k);
    assumeNumbers(std::span(operands).subspan(1), at[0]);
    if (!at[0].isValue() || !writeTo(at[0].id, many.each, at)) {
      return false;
    }
  }
  return count.has_value();
}

// A tensor for all elements of a list has one element. Where nothing is known of it, that it has the list's
// type is left to each run to check.
void InPlaceBuilder::assumeNumbers(std::span<const Operand> operands, const Operand& list) {
  const NodeId like = list.isValue() ? nodeOf_[list.id] : ir::kNone;
  for (const Operand& o : operands) {
    const NodeId id = o.isValue() && like != ir::kNone ? nodeOf_[o.id] : ir::kNone;
    if (id == ir::kNone || graph_.nodes[id].kind != NodeKind::kInput ||
        graph_.nodes[id].elem != Elem::kOther || trace_.values[o.id].kind != TypeKind::kTensor ||
        trace_.values[o.id].meta != ir::kNone) {
      continue;
    }
    graph_.nodes[id].elem = graph_.nodes[like].elem;
    graph_.nodes[id].open = graph_.nodes[id].packed = graph_.nodes[like].elem != Elem::kOther;
  }
}

bool InPlaceBuilder::addForeach(const Instruction& ins, std::string_view name) {
  const std::optional<ForeachOperator> many = findForeach(name);
  const auto operands = trace_.operandsOf(ins);
  const std::optional<size_t> count = many ? listLength(operands) : std::nullopt;
  const Decomposition* row = many ? decompositionOf(many->each) : nullptr;
  if (!count || row == nullptr || many->inPlace || *count != ins.resultCount) {
    return false;
  }
  const auto start = graph_.nodes.size();
  std::vector<NodeId> made;
  for (size_t k = 0; k < *count; ++k) {
    const std::vector<Operand> at = operandsAt(operands, k);
    const NodeId first = at[0].isValue() ? nodeOf_[at[0].id] : ir::kNone;
    const NodeId id =
        first != ir::kNone && isLikeAll(first, at) ? compute(*row, at, Node(graph_.nodes[first])) : ir::kNone;
    const ir::TensorDesc* meta = metaOf(trace_, ins.firstResult + static_cast<uint32_t>(k));
    if (id == ir::kNone || (meta != nullptr && (elemOf(meta->dtype) != graph_.nodes[id].elem ||
                                                strideHints(*meta) != hintsOf(graph_.nodes[id].strides)))) {
      graph_.nodes.resize(start);
      return false;
    }
    made.push_back(id);
  }
  for (size_t k = 0; k < made.size(); ++k) {
    nodeOf_[ins.firstResult + static_cast<uint32_t>(k)] = made[k];
  }
  return true;
}

bool InPlaceBuilder::addLike(const Instruction& ins, std::string_view name) {
  const auto operands = trace_.operandsOf(ins);
  const ops::Operator op = ops::find(name);
  if (ins.resultCount != 1 || operands.empty() || !operands[0].isValue() ||
      ops::infoOf(op).foreach.name.empty() || trace_.values[ins.firstResult].meta != ir::kNone) {
    return false;
  }
  const NodeId first = nodeOf_[operands[0].id];
  const NodeId made = first != ir::kNone && isLikeAll(first, operands)
                          ? compute(*decompositionOf(op), operands, Node(graph_.nodes[first]))
                          : ir::kNone;
  nodeOf_[ins.firstResult] = made;
  return made != ir::kNone;
}

// Floats that lie without gaps, all tensors among the operands being such or numbers.
bool InPlaceBuilder::isLikeAll(NodeId first, std::span<const Operand> operands) const {
  const Node& like = graph_.nodes[first];
  return isFloat(like.elem) && isDense(like.sizes, like.strides) &&
         std::all_of(operands.begin(), operands.end(), [&](const Operand& o) {
           if (!o.isValue() || trace_.values[o.id].kind != TypeKind::kTensor) {
             return true;
           }
           const NodeId id = nodeOf_[o.id];
           return id != ir::kNone && graph_.nodes[id].elem == like.elem &&
                  (graph_.nodes[id].sizes.empty() || hasLayoutOf(graph_.nodes[id], like));
         });
}

// In place, the type of the result is not that of the computation unless all types are one.
bool InPlaceBuilder::sameElements(std::span<const Operand> operands, Elem elem) const {
  return std::all_of(operands.begin(), operands.end(), [&](const Operand& o) {
    return !o.isValue() || trace_.values[o.id].kind != TypeKind::kTensor ||
           (nodeOf_[o.id] != ir::kNone && graph_.nodes[nodeOf_[o.id]].elem == elem);
  });
}

bool InPlaceBuilder::mayWrite(ValueId target) const {
  if (memory_.tensorOf(target) != ir::kNone) {
    return memory_.mayWrite(target);
  }
  const NodeId content = nodeOf_[target];
  return isOwn(graph_.nodes[content]) && graph_.nodes[content].elem != Elem::kOther &&
         !memory_.hasViews(content);
}

}  // namespace kintsugi::passes
