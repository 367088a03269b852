#include <algorithm>
#include <cmath>
#include <limits>

#include "passes/build_graph.h"

namespace kintsugi::passes {

using ir::Operand;
using ir::OperandKind;

namespace {

// Broadcasts two shapes by torch's rules, into `sizes`. Sizes that were equal while recording are required to
// be equal in each run. False: the shapes can't be broadcast.
bool broadcast(std::vector<Size>& sizes, const std::vector<Size>& other) {
  if (other.size() > sizes.size()) {
    sizes.insert(sizes.begin(), other.size() - sizes.size(), Size(1));
  }
  const size_t shift = sizes.size() - other.size();
  for (size_t d = 0; d < other.size(); ++d) {
    Size& size = sizes[d + shift];
    if (size != other[d] && size != 1 && other[d] != 1 &&
        (size.hint != other[d].hint || !sizeTable().require(size, other[d], kZero))) {
      return false;
    }
    size = size == 1 ? other[d] : size;
  }
  return true;
}

// The least number of 64 bits has no opposite.
bool isHeld(int64_t integer, Elem elem) {
  return integer != std::numeric_limits<int64_t>::min() &&
         std::abs(static_cast<double>(integer)) <= largestIn(elem);
}

}  // namespace

void Decomposer::start(const ir::Instruction& instruction, const ir::TensorDesc* result) {
  operands_ = trace_.operandsOf(instruction);
  failed_ = result == nullptr || !compilesFor(result->device);
  elem_ = failed_ ? Elem::kOther : elemOf(result->dtype);
  sizes_ = failed_ ? std::vector<int64_t>() : sizeHints(*result);
}

void Decomposer::start(std::span<const Operand> operands, const Node& like) {
  operands_ = operands;
  elem_ = like.elem;
  failed_ = elem_ == Elem::kOther;
  sizes_ = hintsOf(like.sizes);
}

bool Decomposer::isComputed(size_t k) const {
  return k < operands_.size() && operands_[k].isValue() &&
         trace_.values[operands_[k].id].kind != ir::TypeKind::kTensor;
}

NodeId Decomposer::tensor(size_t k) {
  if (k >= operands_.size() || !operands_[k].isValue() || isComputed(k) ||
      nodeOf_[operands_[k].id] == ir::kNone) {
    return fail();
  }
  const NodeId id = nodeOf_[operands_[k].id];
  return graph_.nodes[id].elem == Elem::kOther ? fail() : id;
}

std::vector<NodeId> Decomposer::tensors(size_t k) {
  std::vector<NodeId> out;
  if (k >= operands_.size() || operands_[k].kind != OperandKind::kList) {
    fail();
    return out;
  }
  for (const Operand& o : trace_.listOf(operands_[k])) {
    const NodeId id = o.isValue() ? nodeOf_[o.id] : ir::kNone;
    if (id == ir::kNone || graph_.nodes[id].elem == Elem::kOther) {
      fail();
      return {};
    }
    out.push_back(id);
  }
  return out;
}

std::pair<size_t, NodeId> Decomposer::onlyTensor(size_t k) {
  std::pair<size_t, NodeId> found{0, ir::kNone};
  const bool list = k < operands_.size() && operands_[k].kind == OperandKind::kList;
  const auto elements = list ? trace_.listOf(operands_[k]) : std::span<const Operand>();
  for (size_t at = 0; at < elements.size(); ++at) {
    if (elements[at].kind == OperandKind::kNone) {
      continue;
    }
    const NodeId id = elements[at].isValue() ? nodeOf_[elements[at].id] : ir::kNone;
    if (id == ir::kNone || found.second != ir::kNone) {
      fail();
      return found;
    }
    found = {at, id};
  }
  if (found.second == ir::kNone || graph_.nodes[found.second].elem == Elem::kOther) {
    fail();
  }
  return found;
}

std::optional<double> Decomposer::number(size_t k) const {
  if (k >= operands_.size()) {
    return std::nullopt;
  }
  switch (operands_[k].kind) {
    case OperandKind::kInt:
    case OperandKind::kBool:
      return static_cast<double>(operands_[k].i);
    case OperandKind::kFloat:
      return operands_[k].f;
    default:
      return std::nullopt;
  }
}

double Decomposer::number(size_t k, double otherwise) const {
  const std::optional<double> value = number(k);
  return value ? *value : otherwise;
}

std::string_view Decomposer::text(size_t k) const {
  return k < operands_.size() && operands_[k].kind == OperandKind::kStr
             ? std::string_view(trace_.strings[operands_[k].id])
             : std::string_view();
}

std::vector<int64_t> Decomposer::ints(size_t k) {
  std::vector<int64_t> out;
  if (k < operands_.size() && operands_[k].kind == OperandKind::kInt) {
    return {operands_[k].i};
  }
  if (k >= operands_.size() || operands_[k].kind != OperandKind::kList) {
    fail();
    return out;
  }
  for (const Operand& element : trace_.listOf(operands_[k])) {
    if (element.kind != OperandKind::kInt) {
      fail();
      return out;
    }
    out.push_back(element.i);
  }
  return out;
}

std::vector<double> Decomposer::floats(size_t k) {
  std::vector<double> out;
  const bool list = k < operands_.size() && operands_[k].kind == OperandKind::kList;
  const auto elements = list ? trace_.listOf(operands_[k]) : std::span<const Operand>();
  for (const Operand& element : elements) {
    if (element.kind == OperandKind::kFloat) {
      out.push_back(element.f);
    }
  }
  if (!list || out.size() != elements.size()) {
    fail();
  }
  return out;
}

NodeId Decomposer::as(size_t k, Elem elem) {
  if (isComputed(k)) {
    return computed(nodeOf_[operands_[k].id], elem);
  }
  if (k < operands_.size() && operands_[k].isValue()) {
    const NodeId id = tensor(k);
    return failed_ ? id : cast(id, elem);
  }
  const bool isInt = k < operands_.size() && operands_[k].kind == OperandKind::kInt;
  if (isInt && !isHeld(operands_[k].i, elem)) {
    return fail();
  }
  if (isInt && !isFloat(elem)) {
    Node node;
    node.kind = NodeKind::kConst;
    node.elem = elem;
    node.integer = operands_[k].i;
    return elem == Elem::kBool ? fail() : graph_.add(std::move(node));
  }
  const std::optional<double> value = number(k);
  // A float in an integer's place would have made the result a float.
  return value && (isFloat(elem) || operands_[k].kind == OperandKind::kBool) ? constant(*value, elem)
                                                                             : fail();
}

// Of as many elements as the first operand, so that it is part of the kernel that uses it.
NodeId Decomposer::computed(NodeId number, Elem elem) {
  if (number == ir::kNone || graph_.nodes[number].elem == Elem::kOther) {
    return fail();
  }
  double& most = graph_.nodes[number].largest;
  most = most == 0 ? largestIn(elem) : std::min(most, largestIn(elem));
  const NodeId made = cast(number, elem);
  const NodeId first = operands_[0].isValue() ? nodeOf_[operands_[0].id] : ir::kNone;
  if (!failed_ && made != number && first != ir::kNone) {
    graph_.nodes[made].sizes = graph_.nodes[first].sizes;
    graph_.nodes[made].strides = contiguousStrides(graph_.nodes[made].sizes);
  }
  return made;
}

NodeId Decomposer::constant(double value, Elem elem) {
  if (std::isfinite(value) && std::abs(value) > largestIn(elem)) {
    return fail();  // ATen takes it for an infinity here and refuses it there
  }
  Node node;
  node.kind = NodeKind::kConst;
  node.elem = elem;
  node.number = elem == Elem::kF64 ? value : static_cast<float>(value);
  node.integer = elem == Elem::kBool ? value != 0 : isFloat(elem) ? 0 : static_cast<int64_t>(value);
  return elem == Elem::kOther ? fail() : graph_.add(std::move(node));
}

NodeId Decomposer::point(Core op, Elem elem, std::initializer_list<NodeId> args) {
  Node node;
  node.kind = NodeKind::kPoint;
  node.op = op;
  node.elem = elem;
  node.args = args;
  failed_ = failed_ || !computes(op, elem) || (strict_ && isTranscendental(op)) ||
            (strict_ && isSmallFloat(elem) && op != Core::kTake);
  for (const NodeId arg : node.args) {
    failed_ = failed_ || arg == ir::kNone;
    if (failed_ || !broadcast(node.sizes, graph_.nodes[arg].sizes)) {
      return fail();
    }
  }
  node.strides = contiguousStrides(node.sizes);
  return graph_.add(std::move(node));
}

NodeId Decomposer::cast(NodeId id, Elem elem) {
  if (failed_ || graph_.nodes[id].elem == elem) {
    return id;
  }
  // What ATen makes of NaN, infinities and numbers out of range depends on the kernel.
  if (isFloat(graph_.nodes[id].elem) && !isFloat(elem) && elem != Elem::kBool) {
    return fail();
  }
  const Node& from = graph_.nodes[id];
  if (from.kind == NodeKind::kConst) {
    return constant(isFloat(from.elem) ? from.number : static_cast<double>(from.integer), elem);
  }
  return point(Core::kCast, elem, {id});
}

NodeId Decomposer::reduce(Core op, NodeId arg, size_t last, size_t trailing) {
  if (failed_ || strict_ || graph_.nodes[arg].elem != Elem::kF32) {
    return fail();
  }
  Node node;
  node.kind = NodeKind::kReduce;
  node.op = op;
  node.elem = isArgReduce(op) ? Elem::kI64 : Elem::kF32;
  node.args = {arg};
  node.reduced = static_cast<uint32_t>(last);
  node.trailing = static_cast<uint32_t>(trailing);
  node.sizes = graph_.nodes[arg].sizes;
  if (last == 0 || last + trailing > node.sizes.size()) {
    return fail();
  }
  Size row = 1;
  const std::vector<Size>& strides = graph_.nodes[arg].strides;
  const size_t end = node.sizes.size() - trailing;
  for (size_t d = end - last; d < end; ++d) {
    row *= node.sizes[d];
    // The rows have to be rows in memory, too.
    const bool fits = last == 1 || d + 1 == end || node.sizes[d] == 1 || node.sizes[d + 1] == 1 ||
                      strides[d] == strides[d + 1] * node.sizes[d + 1];
    failed_ = failed_ || !fits;
    node.sizes[d] = 1;
  }
  if (failed_ || row == 0) {
    return fail();
  }
  node.strides = contiguousStrides(node.sizes);
  return graph_.add(std::move(node));
}

NodeId Decomposer::view(NodeId base, std::vector<Size> sizes, std::vector<Size> strides, int64_t offset) {
  if (failed_ || graph_.nodes[base].kind == NodeKind::kConst) {
    return fail();
  }
  Node node;
  node.kind = NodeKind::kView;
  node.elem = graph_.nodes[base].elem;
  node.sizes = std::move(sizes);
  node.strides = std::move(strides);
  node.offset = offset;
  node.args = {base};
  return graph_.add(std::move(node));
}

NodeId Decomposer::part(NodeId view, NodeId otherwise, std::vector<PartBound> bounds) {
  // Indices are compared in 32 bits.
  constexpr int64_t kMost = int64_t{1} << 30;
  const NodeId made = point(Core::kPart, Elem::kF32, {view, otherwise});
  for (const PartBound& bound : bounds) {
    failed_ = failed_ || bound.dim >= graph_.nodes[made].sizes.size();
    const Size size = failed_ ? Size(0) : graph_.nodes[made].sizes[bound.dim];
    failed_ = failed_ || !size.fixed() || size.hint < 2 || size.hint > kMost;
  }
  if (failed_) {
    return fail();
  }
  graph_.nodes[made].bounds = std::move(bounds);
  return made;
}

NodeId Decomposer::take(NodeId view, NodeId index, IndexedDim indexed) {
  const Elem elem = failed_ ? Elem::kOther : graph_.nodes[index].elem;
  const bool fits = (elem == Elem::kI64 || elem == Elem::kI32) &&
                    graph_.nodes[index].kind != NodeKind::kConst && indexed.count > 0 &&
                    graph_.nodes[view].kind == NodeKind::kView;
  if (!fits) {
    return fail();
  }
  const NodeId made = point(Core::kTake, graph_.nodes[view].elem, {view, index});
  if (!failed_) {
    graph_.nodes[made].indexed = indexed;
  }
  return made;
}

NodeId Decomposer::join(std::vector<NodeId> parts, uint32_t dim, bool stacked) {
  Node node;
  node.kind = NodeKind::kJoin;
  node.elem = elem_;
  node.dim = dim;
  node.stacked = stacked;
  node.sizes = graph_.nodes[parts[0]].sizes;
  if (stacked) {
    node.sizes.insert(node.sizes.begin() + dim, Size(1));
  }
  Size length = 0;
  for (const NodeId id : parts) {
    std::vector<Size> sizes = graph_.nodes[id].sizes;
    if (stacked) {
      sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(dim, sizes.size())), Size(1));
    }
    failed_ = failed_ || sizes.size() != node.sizes.size() || dim >= sizes.size() || !length.fixed();
    for (size_t d = 0; !failed_ && d < sizes.size(); ++d) {
      failed_ =
          sizes[d] == 0 ||
          (d != dim && sizes[d] != node.sizes[d] &&
           (sizes[d].hint != node.sizes[d].hint || !sizeTable().require(sizes[d], node.sizes[d], kZero)));
    }
    if (failed_) {
      return fail();
    }
    length = length + sizes[dim];
  }
  node.sizes[dim] = length;
  node.strides = contiguousStrides(node.sizes);
  node.args = std::move(parts);
  return allFixed(node.sizes) || node.args.size() == 1 || node.strides[dim].fixed()
             ? graph_.add(std::move(node))
             : fail();
}

NodeId Decomposer::reshape(NodeId base, std::vector<Size> sizes) {
  if (failed_ || graph_.nodes[base].strides != contiguousStrides(graph_.nodes[base].sizes) ||
      elementCount(graph_.nodes[base].sizes) != elementCount(sizes)) {
    return fail();
  }
  std::vector<Size> strides = contiguousStrides(sizes);
  return view(base, std::move(sizes), std::move(strides));
}

NodeId Decomposer::broadcastDim(NodeId vector, size_t dim, size_t rank) {
  if (failed_ || graph_.nodes[vector].sizes.size() != 1 || dim >= rank) {
    return fail();
  }
  std::vector<Size> sizes(rank, Size(1));
  sizes[dim] = graph_.nodes[vector].sizes[0];
  return view(vector, std::move(sizes), std::vector<Size>(rank, graph_.nodes[vector].strides[0]));
}

}  // namespace kintsugi::passes
