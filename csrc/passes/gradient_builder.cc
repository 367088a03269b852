#include "passes/gradient_builder.h"

#include <algorithm>
#include <array>

#include "ir/segments.h"
#include "ops/pseudo_operators.h"
#include "passes/view_strides.h"
#include "support/check.h"

namespace kintsugi::passes {

using ir::DType;
using ir::Operand;
using ir::OperandKind;
using ir::TensorDesc;
using ir::ValueId;

void GradientBuilder::start(size_t position, std::vector<KeptByEager> kept) {
  KINTSUGI_CHECK(position < graph_.forward.size() && before_.size() == graph_.forward.size(), "operator ",
                 position, " of ", graph_.forward.size());
  position_ = position;
  kept_ = std::move(kept);
  ins_ = trace_.code[graph_.forward[position]];
}

ValueId GradientBuilder::saved(size_t k) {
  using As = KeptByEager::As;
  const ValueId value = tensor(k);
  const auto kept = std::ranges::find(kept_, static_cast<int8_t>(k), &KeptByEager::operand);
  if (kept == kept_.end() || kept->as == As::kItself) return value;
  const InForward scope(*this);
  if (kept->as == As::kCopy) return contiguous(value);
  // Another argument may be the same tensor, and be kept itself.
  const auto same = std::ranges::find_if(
      kept_, [&](const KeptByEager& other) { return other.value == value && other.as == As::kItself; });
  return same == kept_.end() ? value : make(Operator::kAlias, {val(value)}, meta(value));
}

bool GradientBuilder::isSeen(ValueId value) const {
  return std::ranges::find(graph_.inputs, value) != graph_.inputs.end() ||
         std::ranges::find(graph_.outputs, value) != graph_.outputs.end();
}

std::vector<Operand> GradientBuilder::elements(size_t k) const {
  if (k >= count() || operand(k).kind != OperandKind::kList) {
    return {};
  }
  const auto list = trace_.listOf(operand(k));
  return {list.begin(), list.end()};
}

bool GradientBuilder::isNumber(size_t k) const {
  return k < count() && (operand(k).kind == OperandKind::kInt || operand(k).kind == OperandKind::kFloat ||
                         operand(k).kind == OperandKind::kBool);
}

double GradientBuilder::number(size_t k) const {
  return operand(k).kind == OperandKind::kFloat ? operand(k).f : static_cast<double>(operand(k).i);
}

std::vector<int64_t> GradientBuilder::ints(size_t k) const {
  if (k < count() && operand(k).kind == OperandKind::kInt) {
    return {operand(k).i};
  }
  std::vector<int64_t> out;
  for (const Operand& element : elements(k)) {
    out.push_back(element.i);
  }
  return out;
}

std::string_view GradientBuilder::text(size_t k) const {
  return k < count() && operand(k).kind == OperandKind::kStr ? std::string_view(trace_.strings[operand(k).id])
                                                             : std::string_view();
}

bool GradientBuilder::isActive(ValueId value) const {
  if (value == ir::kNone || trace_.values[value].kind != ir::TypeKind::kTensor ||
      trace_.values[value].meta == ir::kNone) {
    return false;
  }
  return meta(value).requiresGrad;
}

size_t GradientBuilder::dimOf(int64_t dim, ValueId value) const {
  const auto dims = static_cast<int64_t>(std::max<size_t>(1, rank(value)));
  return static_cast<size_t>(dim < 0 ? dim + dims : dim);
}

void GradientBuilder::accumulateInto(ValueId value, ValueId gradient) {
  if (!isActive(value) || gradient == ir::kNone) {
    return;
  }
  KINTSUGI_CHECK(gradient < trace_.values.size() && value < trace_.values.size(), "%", gradient,
                 " is the gradient of %", value);
  gradient = cast(sumTo(gradient, sizes(value)), dtype(value));
  gradientOf_.resize(std::max<size_t>(gradientOf_.size(), value + 1), ir::kNone);
  ValueId& sum = gradientOf_[value];
  sum = sum == ir::kNone ? gradient : add(val(sum), val(gradient));
}

size_t GradientBuilder::append(std::string_view name, std::span<const Operand> operands,
                               std::span<const ir::Type> types) {
  const std::vector<Operand> kept(operands.begin(), operands.end());
  const size_t index = trace_.append(ir::Op::kAten, kept, types);
  trace_.code[index].opName = trace_.internOpName(name);
  return index;
}

ValueId GradientBuilder::make(Operator op, std::span<const Operand> operands, TensorDesc meta) {
  const ir::Type type{ir::TypeKind::kTensor, trace_.internMeta(std::move(meta))};
  const size_t index = append(ops::nameOf(op), operands, {&type, 1});
  (inForward_ ? before_[position_] : graph_.backward).push_back(static_cast<uint32_t>(index));
  return trace_.code[index].firstResult;
}

ValueId GradientBuilder::point(Operator op, std::initializer_list<Operand> operands,
                               std::optional<DType> dtype) {
  std::vector<int64_t> wide;
  for (const Operand& o : operands) {
    if (!o.isValue()) {
      continue;
    }
    const TensorDesc& from = meta(o.id);
    dtype = dtype.value_or(from.dtype);
    if (from.sizes.size() > wide.size()) {
      wide.insert(wide.begin(), from.sizes.size() - wide.size(), 1);
    }
    const size_t shift = wide.size() - from.sizes.size();
    for (size_t d = 0; d < from.sizes.size(); ++d) {
      wide[d + shift] = wide[d + shift] == 1 ? from.sizes[d] : wide[d + shift];
    }
  }
  return make(op, operands, TensorDesc::packed(dtype.value_or(DType::kF32), std::move(wide)));
}

ValueId GradientBuilder::compare(ValueId a, Comparison how, Operand b) {
  struct Forms {
    Operator tensor, number;
  };
  static constexpr Forms kForms[] = {{Operator::kEqTensor, Operator::kEqScalar},
                                     {Operator::kLtTensor, Operator::kLtScalar},
                                     {Operator::kLeTensor, Operator::kLeScalar},
                                     {Operator::kGtTensor, Operator::kGtScalar},
                                     {Operator::kGeTensor, Operator::kGeScalar}};
  const Forms& forms = kForms[static_cast<size_t>(how)];
  return point(b.isValue() ? forms.tensor : forms.number, {val(a), b}, DType::kBool);
}

ValueId GradientBuilder::zeroWhere(ValueId mask, ValueId a) {
  return point(Operator::kWhereScalarSelf, {val(mask), num(0), val(a)}, dtype(a));
}
ValueId GradientBuilder::zeroUnless(ValueId mask, ValueId a) {
  return point(Operator::kWhereScalarOther, {val(mask), val(a), num(0)}, dtype(a));
}

ValueId GradientBuilder::cast(ValueId a, DType wanted) {
  if (meta(a).dtype == wanted) {
    return a;
  }
  const Operand type = Operand::make(OperandKind::kDtype, static_cast<int64_t>(wanted));
  return make(Operator::kToDtype,
              {val(a), type, Operand::boolean(false), Operand::boolean(false), Operand::none()},
              TensorDesc::packed(wanted, sizes(a)));
}

ValueId GradientBuilder::sum(ValueId a, std::vector<int64_t> dims, bool keep, bool mean) {
  std::vector<int64_t> left;
  for (size_t d = 0; d < rank(a); ++d) {
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end()) {
      left.push_back(sizes(a)[d]);
    } else if (keep) {
      left.push_back(1);
    }
  }
  return make(mean ? Operator::kMeanDim : Operator::kSumDimIntList,
              {val(a), list(dims), Operand::boolean(keep), Operand::none()},
              TensorDesc::packed(meta(a).dtype, std::move(left)));
}

ValueId GradientBuilder::sumTo(ValueId a, std::vector<int64_t> wanted) {
  if (sizes(a) == wanted) {
    return a;
  }
  const size_t shift = rank(a) - wanted.size();
  std::vector<int64_t> dims;
  for (size_t d = 0; d < rank(a); ++d) {
    if (d < shift || (wanted[d - shift] == 1 && sizes(a)[d] != 1)) {
      dims.push_back(static_cast<int64_t>(d));
    }
  }
  return reshape(dims.empty() ? a : sum(a, dims, true), wanted);
}

ValueId GradientBuilder::reshape(ValueId a, std::vector<int64_t> wanted) {
  if (sizes(a) == wanted) {
    return a;
  }
  const ValueId from = contiguous(a);
  const Operand shape = list(wanted);
  return make(Operator::kView, {val(from), shape}, TensorDesc::packed(meta(a).dtype, std::move(wanted)));
}

ValueId GradientBuilder::contiguous(ValueId a) {
  if (meta(a).isContiguous()) {
    return a;
  }
  return make(Operator::kContiguous, {val(a), Operand::make(OperandKind::kMemoryFormat, 0)},
              TensorDesc::packed(meta(a).dtype, sizes(a)));
}

ValueId GradientBuilder::permute(ValueId a, const std::vector<int64_t>& dims) {
  TensorDesc out = TensorDesc::packed(meta(a).dtype, {});
  const std::vector<int64_t> strides = stridesOf(meta(a));
  for (const int64_t d : dims) {
    out.sizes.push_back(sizes(a)[static_cast<size_t>(d)]);
    out.strides.push_back(strides[static_cast<size_t>(d)]);
  }
  return make(Operator::kPermute, {val(a), list(dims)}, std::move(out));
}

ValueId GradientBuilder::transpose(ValueId a, size_t d0, size_t d1) {
  std::vector<int64_t> dims(rank(a));
  for (size_t d = 0; d < dims.size(); ++d) {
    dims[d] = static_cast<int64_t>(d);
  }
  if (d0 == d1 || dims.empty()) {
    return a;
  }
  std::swap(dims[d0], dims[d1]);
  return permute(a, dims);
}

ValueId GradientBuilder::expand(ValueId a, std::vector<int64_t> wanted) {
  if (sizes(a) == wanted) {
    return a;
  }
  TensorDesc out = TensorDesc::packed(meta(a).dtype, wanted);
  const std::vector<int64_t> strides = stridesOf(meta(a));
  const size_t shift = wanted.size() - rank(a);
  for (size_t d = 0; d < wanted.size(); ++d) {
    const bool own = d >= shift && (sizes(a)[d - shift] != 1 || wanted[d] == 1);
    out.strides[d] = own ? strides[d - shift] : 0;
  }
  return make(Operator::kExpand, {val(a), list(wanted), Operand::boolean(false)}, std::move(out));
}

ValueId GradientBuilder::slice(ValueId a, size_t dim, int64_t begin, int64_t end) {
  TensorDesc out = TensorDesc::packed(meta(a).dtype, sizes(a));
  out.strides = stridesOf(meta(a));
  out.sizes[dim] = end - begin;
  return make(Operator::kSliceTensor,
              {val(a), Operand::integer(static_cast<int64_t>(dim)), Operand::integer(begin),
               Operand::integer(end), Operand::integer(1)},
              std::move(out));
}

ValueId GradientBuilder::select(ValueId a, size_t dim, int64_t index) {
  TensorDesc out = TensorDesc::packed(meta(a).dtype, sizes(a));
  out.strides = stridesOf(meta(a));
  out.sizes.erase(out.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return make(Operator::kSelectInt,
              {val(a), Operand::integer(static_cast<int64_t>(dim)), Operand::integer(index)}, std::move(out));
}

ValueId GradientBuilder::matmul(ValueId a, ValueId b) {
  std::vector<int64_t> out = sizes(a);
  out.back() = sizes(b).back();
  const Operator op = out.size() == 2 ? Operator::kMm : Operator::kBmm;
  return make(op, {val(a), val(b)}, TensorDesc::packed(dtype(a), std::move(out)));
}

ValueId GradientBuilder::zeros(DType type, std::vector<int64_t> wanted) {
  const Operand number = Operand::make(OperandKind::kDtype, static_cast<int64_t>(type));
  return make(Operator::kZeros,
              {list(wanted), number, Operand::none(),
               Operand::make(OperandKind::kDevice, trace_.internString("cpu")), Operand::none()},
              TensorDesc::packed(type, std::vector<int64_t>(wanted)));
}

ValueId GradientBuilder::join(Operator op, const std::vector<ValueId>& parts, size_t dim,
                              std::vector<int64_t> wanted) {
  return make(op, {list(parts), Operand::integer(static_cast<int64_t>(dim))},
              TensorDesc::packed(dtype(parts[0]), std::move(wanted)));
}

Operand GradientBuilder::list(const std::vector<int64_t>& numbers) {
  std::vector<Operand> out;
  for (const int64_t number : numbers) {
    out.push_back(Operand::integer(number));
  }
  return trace_.listOperand(out);
}

Operand GradientBuilder::list(const std::vector<ValueId>& values) {
  std::vector<Operand> out;
  for (const ValueId value : values) {
    out.push_back(val(value));
  }
  return trace_.listOperand(out);
}

ValueId GradientBuilder::makeMany(Operator op, std::span<const Operand> operands,
                                  std::span<const TensorDesc> metas) {
  KINTSUGI_CHECK(!metas.empty(), ops::nameOf(op), " without results");
  std::vector<ir::Type> types;
  for (const TensorDesc& meta : metas) {
    types.push_back({ir::TypeKind::kTensor, trace_.internMeta(meta)});
  }
  const size_t index = append(ops::nameOf(op), operands, types);
  graph_.backward.push_back(static_cast<uint32_t>(index));
  return trace_.code[index].firstResult;
}

ValueId GradientBuilder::replace(std::string_view name, std::span<const Operand> operands,
                                 std::span<const ir::Type> types) {
  KINTSUGI_CHECK(types.size() >= resultCount(), name, " has ", types.size(), " results in place of ",
                 resultCount());
  const size_t index = append(name, operands, types);
  graph_.forward[position_] = static_cast<uint32_t>(index);
  const ValueId first = trace_.code[index].firstResult;
  // The results have new numbers: all tables by value are updated.
  const ValueId before = ins_.firstResult;
  const auto rename = [&](Operand& o) {
    if (o.isValue() && o.id >= before && o.id < before + resultCount()) {
      o.id = first + (o.id - before);
    }
  };
  std::for_each(trace_.operands.begin(), trace_.operands.end(), rename);
  std::for_each(trace_.lists.begin(), trace_.lists.end(), rename);
  const auto follow = [&](ValueId& value) {
    value = value >= before && value < before + resultCount() ? first + (value - before) : value;
  };
  std::ranges::for_each(graph_.outputs, follow);
  std::ranges::for_each(graph_.results, follow);
  for (auto* pairs : {&graph_.now, &graph_.leaves}) {
    for (auto& pair : *pairs) follow(pair.second);
  }
  for (auto* nodes : {&graph_.saved, &graph_.holders}) {
    for (SavedByEager& node : *nodes) {
      follow(node.base);
      std::ranges::for_each(node.followed, follow);
    }
  }
  for (auto& [at, tape] : graph_.tapes) std::ranges::for_each(tape.followed, follow);
  return first;
}

bool GradientBuilder::tape() {
  std::vector<ValueId> used, active;
  ir::collectValues(trace_, trace_.operandsOf(ins_), used);
  std::vector<ir::Type> types;
  for (size_t r = 0; r < resultCount(); ++r) {
    types.push_back(trace_.values[result(r)]);
  }
  for (const ValueId value : used) {
    if (isActive(value) && std::find(active.begin(), active.end(), value) == active.end()) {
      active.push_back(value);
      TensorDesc leaf = meta(value);
      leaf.isParam = false;
      types.push_back({ir::TypeKind::kTensor, trace_.internMeta(std::move(leaf))});
    }
  }
  const auto own = trace_.operandsOf(ins_);
  const ValueId first = replace(ops::tapedOf(name()), std::vector<Operand>(own.begin(), own.end()), types);
  std::vector<ValueId> results, leaves, gradients;
  for (size_t r = 0; r < resultCount(); ++r) {
    if (gradient(r) != ir::kNone) {
      results.push_back(first + static_cast<ValueId>(r));
      gradients.push_back(gradient(r));
    }
  }
  std::vector<ir::Type> given;
  for (size_t k = 0; k < active.size(); ++k) {
    leaves.push_back(first + static_cast<ValueId>(resultCount() + k));
    graph_.leaves.emplace_back(leaves.back(), active[k]);
    given.push_back({ir::TypeKind::kTensor,
                     trace_.internMeta(TensorDesc::packed(meta(active[k]).dtype, sizes(active[k])))});
  }
  const Operand operands[] = {list(results), list(leaves), list(gradients)};
  const size_t back = append(ops::kTapedGradients, operands, given);
  graph_.backward.push_back(static_cast<uint32_t>(back));
  const ValueId firstGradient = trace_.code[back].firstResult;
  for (size_t k = 0; k < active.size(); ++k) {
    accumulateInto(active[k], firstGradient + static_cast<ValueId>(k));
  }
  return true;
}

}  // namespace kintsugi::passes
