#include "passes/channels_last.h"

#include <algorithm>
#include <array>

#include "ir/segments.h"
#include "ops/operator.h"
#include "ops/pseudo_operators.h"
#include "passes/fold_convolutions.h"
#include "passes/tensor_graph.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

using ir::DType;
using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::OperandKind;
using ir::TensorDesc;
using ir::ValueId;
using Role = ops::LayoutRole;

Role roleOf(std::string_view name) {
  return name == ops::kFoldedConvolution ? Role::kProduct : ops::infoOf(ops::formOf(name)).layout;
}

int64_t countOf(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  return count;
}

std::vector<int64_t> stridesLast(const std::vector<int64_t>& s) {
  return {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]};
}
std::vector<int64_t> stridesFirst(const std::vector<int64_t>& s) {
  return {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1};
}

bool liesAs(const TensorDesc& meta, const std::vector<int64_t>& strides) {
  const std::vector<int64_t> own = meta.strides.empty() ? stridesFirst(meta.sizes) : meta.strides;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (meta.sizes[d] != 1 && own[d] != strides[d]) {
      return false;
    }
  }
  return true;
}

class Mover {
 public:
  explicit Mover(ir::Trace& segment)
      : trace_(segment), rootOf_(segment.values.size()), forms_(segment.values.size()) {
    for (ValueId value = 0; value < rootOf_.size(); ++value) {
      rootOf_[value] = value;
    }
  }

  bool run() {
    std::vector<Instruction> old = std::move(trace_.code);
    trace_.code.clear();
    for (const Instruction& ins : old) {
      if (ins.op == Op::kSegment) {
        std::vector<ValueId> inputs;
        ir::collectValues(trace_, trace_.operandsOf(ins), inputs);
        for (const ValueId value : inputs) {
          hold(value, value);
        }
        trace_.code.push_back(ins);
      } else {
        visit(ins);
      }
    }
    return !lost_ && gain_ > cost_;
  }

 private:
  // The values of one tensor in the two layouts: eager mode's, and with the channels last. Either may be
  // missing.
  struct Form {
    ValueId plain = ir::kNone;
    ValueId last = ir::kNone;
    bool movedBack = false;  // `plain` is a copy of `last`, and may have views
  };

  // Null: the sizes are not four known ones, or the tensor is in neither layout.
  const TensorDesc* metaOf(ValueId value) const {
    const ir::Type& type = trace_.values[value];
    if (type.kind != ir::TypeKind::kTensor || !trace_.hasFixedSizes(type)) {
      return nullptr;
    }
    const TensorDesc& meta = trace_.metas[type.meta];
    const bool fits = meta.sizes.size() == 4 && compilesFor(meta.device) && countOf(meta.sizes) > 0 &&
                      (liesAs(meta, stridesFirst(meta.sizes)) || liesAs(meta, stridesLast(meta.sizes)));
    return fits ? &meta : nullptr;
  }

  // Are the two layouts the same memory order (one channel, or a 1x1 image)?
  bool isBoth(ValueId value) const {
    const TensorDesc* meta = metaOf(value);
    return meta != nullptr && liesAs(*meta, stridesLast(meta->sizes));
  }

  Form& formOf(ValueId value) { return forms_[rootOf_[value]]; }
  bool isOnlyLast(ValueId value) {
    const Form& form = formOf(value);
    return form.plain == ir::kNone && form.last != ir::kNone;
  }

  void hold(ValueId old, ValueId plain) { formOf(old) = {plain, isBoth(plain) ? plain : ir::kNone, false}; }

  ValueId addValue(ir::Type type) {
    const ValueId value = trace_.addValue(type);
    rootOf_.push_back(value);
    forms_.emplace_back();
    return value;
  }

  ir::Type typeLast(ValueId like) {
    TensorDesc meta = trace_.metas[trace_.values[like].meta];
    meta.strides = stridesLast(meta.sizes);
    const auto at = static_cast<ir::MetaId>(trace_.metas.size());
    trace_.metas.push_back(std::move(meta));
    return {ir::TypeKind::kTensor, at};
  }

  // The same elements in the other layout.
  ValueId move(ValueId from, ir::Type type, bool last) {
    constexpr int64_t kContiguous = 0, kChannelsLast = 2;  // torch.memory_format
    Instruction ins;
    ins.op = Op::kAten;
    ins.opName = trace_.internOpName(ops::Operator::kClone);
    ins.firstOperand = static_cast<uint32_t>(trace_.operands.size());
    ins.operandCount = 2;
    trace_.operands.push_back(Operand::value(from));
    trace_.operands.push_back(Operand::make(OperandKind::kMemoryFormat, last ? kChannelsLast : kContiguous));
    ins.firstResult = addValue(type);
    ins.resultCount = 1;
    trace_.code.push_back(ins);
    cost_ += target().costs.moveNanoseconds * static_cast<double>(countOf(trace_.metas[type.meta].sizes));
    return ins.firstResult;
  }

  ValueId plainOf(ValueId old) {
    Form& form = formOf(old);
    if (form.plain == ir::kNone && form.last != ir::kNone) {
      form.movedBack = true;
      const ValueId made = move(form.last, trace_.values[rootOf_[old]], false);
      formOf(old).plain = made;
    }
    return formOf(old).plain != ir::kNone ? formOf(old).plain : old;
  }

  ValueId lastOf(ValueId old) {
    if (formOf(old).last == ir::kNone) {
      const ValueId made = move(formOf(old).plain, typeLast(rootOf_[old]), true);
      formOf(old).last = made;
    }
    return formOf(old).last;
  }

  void visit(Instruction ins) {
    const std::string_view name =
        ins.op == Op::kAten ? std::string_view(trace_.opNames[ins.opName]) : std::string_view();
    const Role role = roleOf(name);
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    const bool inPlace = ops::isInPlace(name);
    const bool last = ins.resultCount == 1 && !used.empty() && isTaken(role, used, ins.firstResult) &&
                      (!inPlace || isOnlyLast(used.front()));
    // Lists may be shared, so they are made again.
    const auto span = trace_.operandsOf(ins);
    std::vector<Operand> operands(span.begin(), span.end());
    for (size_t k = 0; k < operands.size(); ++k) {
      const bool asResult = role == Role::kSame || k == 0 ||
                            (role == Role::kProduct && k == FoldedOperands::kAdded && operands.size() > k);
      operands[k] = replaced(operands[k], ins.op == Op::kSize || last, last && asResult,
                             role == Role::kReads ? ir::kNone : ins.firstResult);
    }
    ins.firstOperand = static_cast<uint32_t>(trace_.operands.size());
    trace_.operands.insert(trace_.operands.end(), operands.begin(), operands.end());
    if (last && role == Role::kProduct) {
      gain_ += gainOf(ins, name);
    }
    finish(ins, inPlace ? used.front() : ir::kNone, last && role != Role::kReads);
  }

  // Is the operator to work with the channels last?
  bool isTaken(Role role, const std::vector<ValueId>& used, ValueId result) {
    const TensorDesc* made = metaOf(result);
    const TensorDesc* first = metaOf(rootOf_[used.front()]);
    switch (role) {
      case Role::kOther:
        return false;
      case Role::kReads:
        return first != nullptr && isOnlyLast(used.front());
      case Role::kProduct:
        return first != nullptr && made != nullptr && first->dtype == DType::kF32 &&
               made->dtype == DType::kF32;
      case Role::kSame:
        return made != nullptr &&
               std::any_of(used.begin(), used.end(), [this](ValueId v) { return isOnlyLast(v); });
    }
    return false;
  }

  // The operands of an operator: tensors of the result's kind in the channels-last layout if `last`; others
  // in any layout that exists if `any`.
  Operand replaced(const Operand& o, bool any, bool last, ValueId result) {
    if (o.isValue()) {
      const ValueId root = rootOf_[o.id];
      const bool takes = last && metaOf(root) != nullptr && (result == ir::kNone || isLarge(root, result));
      return Operand::value(takes                     ? lastOf(o.id)
                            : any && isOnlyLast(o.id) ? forms_[root].last
                                                      : plainOf(o.id));
    }
    if (o.kind != OperandKind::kList) {
      return o;
    }
    std::vector<Operand> elements(trace_.listOf(o).begin(), trace_.listOf(o).end());
    for (Operand& element : elements) {
      element = replaced(element, any, last, result);
    }
    return trace_.listOperand(elements);
  }

  // A weight of four dimensions stays what it is; a tensor of a few elements for each channel may lie in any
  // way.
  bool isLarge(ValueId root, ValueId result) const {
    const TensorDesc& meta = trace_.metas[trace_.values[root].meta];
    const TensorDesc& made = trace_.metas[trace_.values[result].meta];
    return meta.sizes[0] == made.sizes[0] && meta.sizes[2] * meta.sizes[3] > 1 && !meta.isParam;
  }

  void finish(Instruction& ins, ValueId target, bool last) {
    if (target != ir::kNone && ins.resultCount == 1) {
      Form& form = formOf(target);
      lost_ = lost_ || form.movedBack;  // a view of the copy would not see this write
      rootOf_[ins.firstResult] = rootOf_[target];
    }
    if (!last) {
      trace_.code.push_back(ins);
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        hold(ins.firstResult + r, ins.firstResult + r);
      }
      return;
    }
    const ValueId old = ins.firstResult;
    if (isBoth(old)) {
      trace_.code.push_back(ins);
      hold(old, old);
      return;
    }
    ins.firstResult = addValue(typeLast(old));
    trace_.code.push_back(ins);
    formOf(old) = {ir::kNone, ins.firstResult, false};
  }

  // Nanoseconds that the layout saves a convolution: a share of its work, and the pass over the result that a
  // folded operator saves.
  double gainOf(const Instruction& ins, std::string_view name) const {
    const Target::Costs& costs = target().costs;
    const Target::ChannelsLast& gains = target().channelsLast;
    const auto operands = trace_.operandsOf(ins);
    const bool folded = name == ops::kFoldedConvolution;
    const std::vector<int64_t>& made = trace_.metas[trace_.values[ins.firstResult].meta].sizes;
    const std::vector<int64_t>& from = trace_.metas[trace_.values[operands[0].id].meta].sizes;
    if (!operands[1].isValue() || trace_.values[operands[1].id].meta == ir::kNone) {
      return 0;
    }
    const std::vector<int64_t>& weight = trace_.metas[trace_.values[operands[1].id].meta].sizes;
    if (weight.size() != 4) {
      return 0;
    }
    const double places = static_cast<double>(countOf(folded ? made : from));
    const double work =
        2 * places * static_cast<double>(weight[1] * weight[2] * weight[3]) / costs.flopsPerNanosecond;
    if (!folded) {
      return gains.plain * work;
    }
    const bool hasEpilogue = operands[FoldedOperands::kAdded].isValue() ||
                             trace_.strings[operands[FoldedOperands::kActivation].id] != "none";
    const double saved = hasEpilogue ? costs.passNanoseconds * places : 0;
    const int64_t written = weight[0], read = weight[1];
    double share = gains.folded;
    if (weight[2] * weight[3] == 1) {
      if (std::min(written, read) < gains.narrowerThan) share = gains.narrowProduct;
    } else if (read <= gains.imageChannels && written > gains.imageChannels) {
      share = gains.image;
    } else if (read < gains.fewerThan) {
      share = gains.fewChannels;
    }
    return saved + share * work;
  }

  ir::Trace& trace_;
  std::vector<ValueId> rootOf_;  // by value: the tensor that it is, before it was written to
  std::vector<Form> forms_;      // by root
  double gain_ = 0, cost_ = 0;
  bool lost_ = false;
};

}  // namespace

bool putChannelsLast(ir::Trace& segment) { return Mover(segment).run(); }

}  // namespace kintsugi::passes
