#include "passes/kept_by_eager.h"

#include <algorithm>
#include <optional>
#include <span>

#include "ir/quiet_ops.h"
#include "ops/operator.h"
#include "ops/saved.h"
#include "passes/operator_rules.h"
#include "passes/requires_grad.h"
#include "passes/view_strides.h"

namespace kintsugi::passes {

namespace {

using As = KeptByEager::As;
using ir::Operand;
using ir::ValueId;
using ops::Operator;

bool isActive(const ir::Trace& trace, const Operand& operand) {
  return operand.isValue() && requiresGrad(trace, operand.id);
}

// Does a reshape need no copy?
bool canView(const ir::TensorDesc& meta, std::span<const int64_t> wanted) {
  return meta.isContiguous() || viewStrides(meta, wanted).has_value();
}

// Can the first `count` dimensions be seen as one?
bool canJoin(const ir::TensorDesc& meta, size_t count) {
  if (meta.isContiguous()) return true;
  int64_t next = -1;  // what a stride has to be
  for (size_t d = count; d-- > 0;) {
    if (meta.sizes[d] == 1) continue;
    if (next >= 0 && meta.strides[d] != next) return false;
    next = meta.strides[d] * meta.sizes[d];
  }
  return true;
}

// A pool to one element of each plane, which ATen computes as a mean.
bool isMean(const ir::Trace& trace, const Operand& sizes) {
  const auto isOne = [](const Operand& size) { return size.kind == ir::OperandKind::kInt && size.i == 1; };
  return sizes.kind == ir::OperandKind::kList ? std::ranges::all_of(trace.listOf(sizes), isOne)
                                              : isOne(sizes);
}

bool isWanted(const ir::Trace& trace, const ops::Saved& saved, std::span<const Operand> operands) {
  if (saved.as == ops::Saved::As::kUnlessMean && operands.size() > 1 && isMean(trace, operands[1])) {
    return false;
  }
  bool wanted = saved.wanted == 0;
  for (size_t k = 0; k < operands.size() && k < 16; ++k) {
    wanted = wanted || ((saved.wanted >> k & 1) != 0 && isActive(trace, operands[k]));
  }
  return wanted;
}

// ATen's should_fold(), of a product whose left argument has at least as many dimensions as the right one.
As asFolded(const ir::Trace& trace, const Operand& left, const Operand& right, bool isLeft) {
  const ir::TensorDesc& l = trace.metas[trace.values[left.id].meta];
  const ir::TensorDesc& r = trace.metas[trace.values[right.id].meta];
  const size_t rank = l.sizes.size(), other = r.sizes.size();
  if (rank <= 2 && other == 2) return rank == 2 || !isLeft ? As::kItself : As::kView;
  if (other == 2) {
    const bool matrix = canJoin(l, rank - 1);
    const bool folds = isActive(trace, right) || matrix;
    if (!isLeft) return folds ? As::kItself : As::kView;
    return (folds ? matrix : canJoin(l, rank - 2)) ? As::kView : As::kCopy;
  }
  return canJoin(isLeft ? l : r, rank - 2) ? As::kView : As::kCopy;
}

// Is the result, with metadata `result`, the first argument itself, whose metadata is `base`?
bool givesBack(const ir::Trace& trace, const ir::Instruction& ins, const ir::TensorDesc& base,
               const ir::TensorDesc& result) {
  using When = ops::GivesBack::When;
  const ops::GivesBack& row = ops::infoOf(trace.operatorOf(ins)).givesBack;
  const std::span<const Operand> operands = trace.operandsOf(ins);
  const bool sameSizes = base.dtype == result.dtype && base.sizes == result.sizes;
  switch (row.when) {
    case When::kNever:
      return false;
    case When::kAlways:
      return true;
    case When::kSameForm: {
      const auto at = static_cast<size_t>(row.operand);
      const bool copies = row.operand >= 0 && at < operands.size() && operands[at].i != 0;
      return sameSizes && base.device == result.device && stridesOf(base) == stridesOf(result) && !copies;
    }
    case When::kSameSizes:
      return sameSizes;
    case When::kIfQuiet:
      return ir::isQuiet(trace, ins);
  }
  return false;
}

// None: it is not known.
std::optional<size_t> rankOf(const ir::Trace& trace, ValueId value) {
  const ir::MetaId meta = trace.values[value].meta;
  return meta == ir::kNone ? std::nullopt : std::optional(trace.metas[meta].sizes.size());
}

}  // namespace

Sharing sharingOf(const ir::Trace& trace, const ir::Instruction& ins) {
  const Operator op = trace.operatorOf(ins);
  const std::span<const Operand> operands = trace.operandsOf(ins);
  if (ins.op != ir::Op::kAten || ins.resultCount == 0 || operands.empty() || !operands[0].isValue()) {
    return Sharing::kNone;
  }
  const ir::Type &from = trace.values[operands[0].id], &to = trace.values[ins.firstResult];
  if (from.meta == ir::kNone || to.meta == ir::kNone) return isView(op) ? Sharing::kView : Sharing::kNone;
  const ir::TensorDesc &base = trace.metas[from.meta], &result = trace.metas[to.meta];
  if (givesBack(trace, ins, base, result)) return Sharing::kItself;
  const bool views = isView(op) && (!ops::has(op, ops::Trait::kMayCopy) || canView(base, result.sizes));
  return views ? Sharing::kView : Sharing::kNone;
}

bool isConverted(const ir::Trace& trace, const ir::Instruction& ins) {
  const auto operands = trace.operandsOf(ins);
  const bool converts = ops::infoOf(trace.operatorOf(ins)).givesBack.when == ops::GivesBack::When::kSameForm;
  return converts && !operands.empty() && operands[0].isValue() &&
         trace.values[operands[0].id].meta != ir::kNone && trace.values[ins.firstResult].meta != ir::kNone;
}

bool keepsAny(const ir::Trace& trace, const ir::Instruction& ins) {
  const Operator op = trace.operatorOf(ins);
  const std::span<const ops::Saved> row = ops::savedBy(op);
  const GradientRule* rule = gradientOf(op);
  if (row.empty())
    return rule == nullptr || (rule->make == nullptr && !ops::has(op, ops::Trait::kKeepsNothing));
  return std::ranges::any_of(
      row, [&](const ops::Saved& saved) { return isWanted(trace, saved, trace.operandsOf(ins)); });
}

std::vector<KeptByEager> keptByEager(const ir::Trace& trace, const ir::Instruction& ins) {
  using Form = ops::Saved::As;
  const Operator op = trace.operatorOf(ins);
  const std::span<const Operand> operands = trace.operandsOf(ins);
  std::vector<KeptByEager> kept;
  for (const ops::Saved& saved : ops::savedBy(op)) {
    if (!isWanted(trace, saved, operands)) continue;
    if (saved.what == ops::Saved::kResult) {
      kept.push_back({ins.firstResult, As::kView});
      continue;
    }
    if (saved.what == ops::Saved::kOwn) continue;
    const auto at = static_cast<size_t>(saved.what);
    if (at >= operands.size() || !operands[at].isValue()) continue;
    const ValueId value = operands[at].id;
    const ir::Type& type = trace.values[value];
    if (type.kind != ir::TypeKind::kTensor || type.meta == ir::kNone) continue;
    As as = saved.as == Form::kView ? As::kView : As::kItself;
    if (saved.as == Form::kFolded) {
      const ops::ProductOperands& product = ops::infoOf(op).product;
      as = asFolded(trace, operands[product.left], operands[product.right], at == product.left);
    } else if (saved.as == Form::kWidened) {
      as = rankOf(trace, value) == rankOf(trace, ins.firstResult) ? As::kItself : As::kView;
    } else if (saved.as == Form::kUnlessBools && trace.metas[type.meta].dtype == ir::DType::kBool) {
      as = As::kCopy;
    }
    kept.push_back({value, as, saved.what});
    for (size_t k = 0; saved.alone && k < operands.size(); ++k) {
      if ((saved.wanted >> k & 1) != 0 && operands[k].isValue()) kept.back().alone.push_back(operands[k].id);
    }
  }
  return kept;
}

}  // namespace kintsugi::passes
