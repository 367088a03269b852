#include "passes/size_decisions.h"

#include <algorithm>

#include "ir/segments.h"
#include "ops/operator.h"

namespace kintsugi::passes {

namespace {

using ir::Instruction;
using ir::Op;
using ir::TypeKind;
using ir::ValueId;

class Finder {
 public:
  Finder(const ir::Trace& trace, OperatorTraitsFn traits)
      : trace_(trace),
        traits_(traits),
        ofData_(trace.values.size()),
        ofSizes_(trace.values.size()),
        inexact_(trace.values.size()),
        unsure_(trace.values.size()),
        made_(trace.values.size()) {
    found_.bySymbols.resize(trace.code.size());
    found_.byData.resize(trace.code.size());
  }

  SizeDecisions run() {
    for (size_t i = 0; i < trace_.code.size(); ++i) {
      const Instruction& ins = trace_.code[i];
      if (ins.op == Op::kAten) {
        placeOperator(ins, i);
      } else if (ir::isGraphOp(ins.op)) {
        placeNumber(ins);
      } else {
        found_.bySymbols[i] = isBySymbols(ins);
      }
    }
    return std::move(found_);
  }

 private:
  bool usesAny(const Instruction& ins, const std::vector<bool>& which) {
    used_.clear();
    ir::collectValues(trace_, trace_.operandsOf(ins), used_);
    return std::ranges::any_of(used_, [&](ValueId value) { return which[value]; });
  }

  // May the operator lay its results out otherwise than torch's function for fake tensors says? A write gives
  // back its argument, and what attention makes is laid out as the queries are, whatever its mask.
  bool isUnsure(const Instruction& ins) {
    const std::string_view name = trace_.opNames[ins.opName];
    const ops::Operator op = trace_.operatorOf(ins);
    const bool known =
        op != ops::Operator::kUnknown || ops::has(name, ops::Trait::kFresh) || ops::isInPlace(name);
    if (!known || ops::has(name, ops::Trait::kLaysOutOtherwise)) return true;
    const int8_t mask = ops::infoOf(op).attention.mask;
    if (mask < 0) return usesAny(ins, unsure_);
    used_.clear();
    ir::collectValues(trace_, trace_.operandsOf(ins).first(static_cast<size_t>(mask)), used_);
    return std::ranges::any_of(used_, [&](ValueId value) { return unsure_[value]; });
  }

  // A number that an operator gives was read from data.
  void placeOperator(const Instruction& ins, size_t at) {
    const OperatorTraits traits = traits_(trace_.opNames[ins.opName]);
    const bool given = usesAny(ins, ofData_);
    const bool unsure = isUnsure(ins);
    found_.byData[at] = given && traits.countOfSizes;
    const bool data = given || traits.sizesOfData || (traits.sizesFromMask && mayTakeMask(ins));
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ir::Type& type = trace_.values[ins.firstResult + r];
      const bool open = type.kind != TypeKind::kTensor || !trace_.hasFixedSizes(type);
      ofData_[ins.firstResult + r] = open && (type.kind != TypeKind::kTensor || data);
      made_[ins.firstResult + r] = type.kind == TypeKind::kTensor;
      unsure_[ins.firstResult + r] = unsure;
    }
  }

  void placeNumber(const Instruction& ins) {
    const bool data = usesAny(ins, ofData_);
    const bool sizes = ins.op == Op::kSize || ins.op == Op::kNumel || usesAny(ins, ofSizes_);
    const bool inexact = ins.op == Op::kStride || isOfFloats(ins) || usesAny(ins, inexact_);
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      ofData_[ins.firstResult + r] = data;
      ofSizes_[ins.firstResult + r] = sizes && !data && !inexact;
      inexact_[ins.firstResult + r] = inexact;
    }
  }

  // Symbols are computed with as in algebra, which floats are not.
  bool isOfFloats(const Instruction& ins) const {
    const auto isFloat = [this](const ir::Operand& operand) {
      return operand.kind == ir::OperandKind::kFloat ||
             (operand.isValue() && trace_.values[operand.id].kind == TypeKind::kFloat);
    };
    return (ins.resultCount != 0 && trace_.values[ins.firstResult].kind == TypeKind::kFloat) ||
           std::ranges::any_of(trace_.operandsOf(ins), isFloat);
  }

  bool isBySymbols(const Instruction& ins) const {
    if (!ir::isGuardOfValue(ins.op)) return false;
    const bool ofNumber = ins.op != Op::kGuardMeta;
    const auto operands = trace_.operandsOf(ins);
    if (!operands[0].isValue()) return false;
    const ValueId asked = operands[0].id;
    if (ofNumber) return ofSizes_[asked];
    const ir::TensorDesc& desc = trace_.metas[static_cast<size_t>(operands[1].i)];
    return made_[asked] && !ofData_[asked] && isPlain(desc) &&
           (!saysLayout(desc) || isLayoutSure(desc, asked));
  }

  static bool saysLayout(const ir::TensorDesc& desc) {
    return desc.contiguity != ir::Contiguity::kEither || (desc.isFixed() && !desc.strides.empty());
  }
  // Are the strides of a tensor of the graph those of the fake one? A stride of a single element need not be.
  bool isLayoutSure(const ir::TensorDesc& desc, ValueId asked) const {
    return !unsure_[asked] &&
           (desc.isOpen() || std::ranges::all_of(desc.sizes, [](int64_t size) { return size > 1; }));
  }

  // Does it say nothing but what checks.py can ask a tensor of the graph?
  static bool isPlain(const ir::TensorDesc& desc) {
    return desc.plain && desc.layout == 0 && !desc.isConj && !desc.isNeg && !desc.isParam;
  }

  // May one of the indices be a mask, or the operator count what its argument holds?
  bool mayTakeMask(const Instruction& ins) {
    used_.clear();
    ir::collectValues(trace_, trace_.operandsOf(ins), used_);
    return used_.size() < 2 || std::any_of(used_.begin() + 1, used_.end(), [this](ValueId value) {
             const ir::Type& type = trace_.values[value];
             if (type.kind != TypeKind::kTensor) return false;
             const bool known = type.meta != ir::kNone;
             return !known || trace_.metas[type.meta].dtype == ir::DType::kBool ||
                    trace_.metas[type.meta].dtype == ir::DType::kU8;
           });
  }

  const ir::Trace& trace_;
  const OperatorTraitsFn traits_;
  std::vector<bool> ofData_;   // by value: a number that data says, or a tensor with such sizes
  std::vector<bool> ofSizes_;  // by value: a number that follows from sizes, and not from data
  std::vector<bool> inexact_;  // by value: a number of floats or strides
  std::vector<bool> unsure_;   // by value: a tensor whose strides a fake one may not have
  std::vector<bool> made_;     // by value: a tensor that an operator of the trace makes
  std::vector<ValueId> used_;
  SizeDecisions found_;
};

}  // namespace

SizeDecisions findSizeDecisions(const ir::Trace& trace, OperatorTraitsFn traits) {
  return Finder(trace, traits).run();
}

}  // namespace kintsugi::passes
