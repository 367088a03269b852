#include "passes/fold_convolutions.h"

#include <algorithm>
#include <array>
#include <optional>

#include "ir/segments.h"
#include "ops/operator.h"
#include "ops/pseudo_operators.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

namespace {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::OperandKind;
using ir::ValueId;
using ops::Operator;
using F = FoldedOperands;

class Folder {
 public:
  Folder(ir::Trace& segment, bool norms)
      : trace_(segment), norms_(norms), uses_(segment.values.size()), to_(segment.values.size()) {
    for (ValueId value = 0; value < to_.size(); ++value) {
      to_[value] = value;
    }
    for (uint32_t at = 0; at < trace_.code.size(); ++at) {
      std::vector<ValueId> used;
      ir::collectValues(trace_, trace_.operandsOf(trace_.code[at]), used);
      for (const ValueId value : used) {
        uses_[value].push_back(at);
      }
    }
    ir::collectValues(trace_, trace_.operandsOf(trace_.code.front()), inputs_);
    std::sort(inputs_.begin(), inputs_.end());
  }

  bool run() {
    gone_.assign(trace_.code.size(), false);
    bool found = false;
    for (uint32_t at = 0; at < gone_.size(); ++at) {
      found = fold(at) || found;
    }
    if (!found) {
      return false;
    }
    std::vector<Instruction> code;
    for (uint32_t at = 0; at < gone_.size(); ++at) {
      if (!gone_[at]) {
        rename({trace_.operands.data() + trace_.code[at].firstOperand, trace_.code[at].operandCount});
        code.push_back(trace_.code[at]);
      }
    }
    trace_.code = std::move(code);
    return true;
  }

 private:
  // A chain that begins with a convolution, as far as it has been folded.
  struct Chain {
    uint32_t last = 0;  // instruction
    ValueId value = ir::kNone;
    std::vector<uint32_t> parts;
    std::vector<ValueId> values;  // all that it makes
    std::array<Operand, F::kCount> operands;
  };

  std::string_view nameOf(const Instruction& ins) const {
    return ins.op == Op::kAten ? std::string_view(trace_.opNames[ins.opName]) : std::string_view();
  }

  const ir::TensorDesc* metaOf(ValueId value) const {
    const ir::Type& type = trace_.values[value];
    return type.kind == ir::TypeKind::kTensor && trace_.hasFixedSizes(type) ? &trace_.metas[type.meta]
                                                                            : nullptr;
  }

  static bool isFloat(const ir::TensorDesc* meta, size_t rank) {
    return meta != nullptr && meta->dtype == ir::DType::kF32 && compilesFor(meta->device) &&
           meta->sizes.size() == rank &&
           std::all_of(meta->sizes.begin(), meta->sizes.end(), [](int64_t size) { return size > 0; });
  }

  // A contiguous input of the segment.
  bool isParameter(const Operand& o, size_t rank) const {
    return o.isValue() && std::binary_search(inputs_.begin(), inputs_.end(), o.id) &&
           isFloat(metaOf(o.id), rank) && metaOf(o.id)->isContiguous();
  }
  bool mayBeParameter(const Operand& o, size_t rank) const {
    return o.kind == OperandKind::kNone || isParameter(o, rank);
  }

  bool isPair(const Operand& o) const {
    const auto elements = o.kind == OperandKind::kList ? trace_.listOf(o) : std::span<const Operand>();
    return elements.size() == 2 && std::all_of(elements.begin(), elements.end(), [](const Operand& element) {
             return element.kind == OperandKind::kInt;
           });
  }

  bool fold(uint32_t at) {
    const Instruction& ins = trace_.code[at];
    const auto operands = trace_.operandsOf(ins);
    if (trace_.operatorOf(ins) != Operator::kConv2d || operands.size() != 7 || !operands[0].isValue() ||
        !isFloat(metaOf(operands[0].id), 4) || !isParameter(operands[1], 4) ||
        !mayBeParameter(operands[2], 1) || !isPair(operands[3]) || !isPair(operands[4]) ||
        !isPair(operands[5]) || operands[6].kind != OperandKind::kInt ||
        !isFloat(metaOf(ins.firstResult), 4)) {
      return false;
    }
    Chain chain;
    std::copy(operands.begin(), operands.end(), chain.operands.begin());
    chain.operands[F::kEpsilon] = Operand::number(0);
    chain.operands[F::kActivation] = trace_.stringOperand("none");
    chain.operands[F::kSlope] = Operand::number(0);
    extend(chain, at);
    if (norms_) {
      addNorm(chain);
    }
    if (!addActivation(chain)) {
      addResidual(chain);
    }
    finish(chain);
    return true;
  }

  void extend(Chain& chain, uint32_t at) const {
    chain.last = at;
    chain.parts.push_back(at);
    chain.value = trace_.code[at].firstResult;
    chain.values.push_back(chain.value);
  }

  // The only user of the chain's last value. None: there are other users, or a write comes in between.
  std::optional<uint32_t> next(const Chain& chain) const {
    const std::vector<uint32_t>& users = uses_[chain.value];
    if (users.empty()) {
      return std::nullopt;
    }
    const uint32_t at = users.front();
    const Instruction& ins = trace_.code[at];
    const bool own =
        std::count(users.begin(), users.end(), at) == 1 && (users.size() == 1 || ops::isInPlace(nameOf(ins)));
    if (!own || nameOf(ins).empty() || ins.resultCount != 1 || ins.operandCount == 0) {
      return std::nullopt;
    }
    for (uint32_t k = chain.last + 1; k < at; ++k) {
      if (trace_.code[k].op != Op::kAten || ops::isInPlace(nameOf(trace_.code[k]))) {
        return std::nullopt;
      }
    }
    return at;
  }

  void addNorm(Chain& chain) {
    const auto at = next(chain);
    if (!at || trace_.operatorOf(trace_.code[*at]) != Operator::kBatchNorm) {
      return;
    }
    const auto operands = trace_.operandsOf(trace_.code[*at]);
    const bool fits = operands.size() == 9 && isValue(operands[0], chain.value) &&
                      mayBeParameter(operands[1], 1) && mayBeParameter(operands[2], 1) &&
                      isParameter(operands[3], 1) && isParameter(operands[4], 1) &&
                      operands[5].kind == OperandKind::kBool && operands[5].i == 0 &&
                      operands[7].kind == OperandKind::kFloat;
    if (!fits) {
      return;
    }
    for (size_t k = 0; k < 4; ++k) {
      chain.operands[F::kScale + k] = operands[1 + k];
    }
    chain.operands[F::kEpsilon] = operands[7];
    extend(chain, *at);
  }

  bool addActivation(Chain& chain) {
    const auto at = next(chain);
    if (!at) {
      return false;
    }
    const auto operands = trace_.operandsOf(trace_.code[*at]);
    const ops::Activation& row = ops::infoOf(ops::formOf(nameOf(trace_.code[*at]))).activation;
    if (row.attribute.empty() || operands.size() != row.operands || !isValue(operands[0], chain.value)) {
      return false;
    }
    if (!row.text.empty() &&
        (operands[1].kind != OperandKind::kStr || trace_.strings[operands[1].id] != row.text)) {
      return false;
    }
    double slope = row.slope;
    if (slope == ops::Activation::kOperand) {
      const bool whole = operands[1].kind == OperandKind::kInt;
      slope = whole ? static_cast<double>(operands[1].i) : operands[1].f;
      if ((!whole && operands[1].kind != OperandKind::kFloat) || !(slope > 0)) {
        return false;
      }
    }
    chain.operands[F::kActivation] = trace_.stringOperand(row.attribute);
    chain.operands[F::kSlope] = Operand::number(slope);
    extend(chain, *at);
    return true;
  }

  static bool isValue(const Operand& o, ValueId value) { return o.isValue() && o.id == value; }

  void addResidual(Chain& chain) {
    const auto at = next(chain);
    if (!at || ops::formOf(nameOf(trace_.code[*at])) != Operator::kAddTensor) {
      return;
    }
    const Instruction& ins = trace_.code[*at];
    const auto operands = trace_.operandsOf(ins);
    const bool first = isValue(operands[0], chain.value);
    if (operands.size() != 3 || !operands[0].isValue() || !operands[1].isValue() ||
        operands[2].kind != OperandKind::kInt || operands[2].i != 1 ||
        (!first && ops::isInPlace(nameOf(ins)))) {
      return;
    }
    const ValueId other = operands[first ? 1 : 0].id;
    const ir::TensorDesc* meta = metaOf(other);
    Chain withResidual = chain;
    extend(withResidual, *at);
    const auto following = next(withResidual);
    const Operator activation = following ? ops::formOf(nameOf(trace_.code[*following])) : Operator::kUnknown;
    const bool relu = activation == Operator::kRelu || activation == Operator::kRelu6;
    if (relu || !isFloat(meta, 4) || meta->sizes != metaOf(ins.firstResult)->sizes) {
      return;
    }
    withResidual.operands[F::kAdded] = Operand::value(other);
    chain = std::move(withResidual);
  }

  // The last instruction of the chain becomes the whole of it.
  void finish(const Chain& chain) {
    Instruction& ins = trace_.code[chain.last];
    ins.opName = trace_.internOpName(ops::kFoldedConvolution);
    ins.firstOperand = static_cast<uint32_t>(trace_.operands.size());
    ins.operandCount = F::kCount;
    trace_.operands.insert(trace_.operands.end(), chain.operands.begin(), chain.operands.end());
    for (const uint32_t part : chain.parts) {
      gone_[part] = part != chain.last;
    }
    for (const ValueId value : chain.values) {
      to_[value] = chain.value;
    }
  }

  void rename(std::span<Operand> operands) {
    for (Operand& o : operands) {
      if (o.isValue()) {
        o.id = to_[o.id];
      } else if (o.kind == OperandKind::kList) {
        rename({trace_.lists.data() + o.id, o.count});
      }
    }
  }

  ir::Trace& trace_;
  const bool norms_;
  std::vector<std::vector<uint32_t>> uses_;  // by value: instructions
  std::vector<ValueId> to_;                  // by value: what stands for it
  std::vector<ValueId> inputs_;
  std::vector<bool> gone_;  // instructions
};

}  // namespace

bool foldConvolutions(ir::Trace& segment, bool norms) { return Folder(segment, norms).run(); }

}  // namespace kintsugi::passes
