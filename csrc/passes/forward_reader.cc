#include "passes/forward_reader.h"

#include <algorithm>
#include <iterator>

#include "ir/quiet_ops.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "passes/gradient_builder.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::TypeKind;
using ir::ValueId;
using ops::Operator;
using ops::Trait;

bool givesFreshResults(Operator op) { return gradientOf(op) != nullptr && ops::has(op, Trait::kFresh); }

ForwardReader::ForwardReader(const ir::Trace& segment, const GradientOptions& options, std::string& reason)
    : options_(options), reason_(reason), madeBy_(segment.values.size(), ir::kNone) {
  graph_.trace = segment;
}

bool ForwardReader::readSegment() {
  bool started = false;
  const auto count = static_cast<uint32_t>(trace().code.size());
  segmentEnd_ = count - 1;
  for (uint32_t at = 0; at < count; ++at) {
    const Instruction ins = trace().code[at];
    if (ins.op == Op::kSegment) {
      ir::collectValues(trace(), trace().operandsOf(ins), graph_.inputs);
    } else if (ins.op == Op::kSegmentEnd) {
      ir::collectValues(trace(), trace().operandsOf(ins), graph_.results);
    } else if (ins.op == Op::kSetGrad) {
      started = true;
      sequence_.push_back(at);
      if (trace().operandsOf(ins)[0].kind != ir::OperandKind::kBool) {
        return refuse("it sets the grad mode to something that is not static");
      }
      graph_.gradAfter = trace().operandsOf(ins)[0].i != 0;
    } else if (ins.op != Op::kAten) {
      return refuse("training with numbers that vary");
    } else if (!readOperator(ins, at, started)) {
      return false;
    }
  }
  return true;
}

bool ForwardReader::readOperator(const Instruction& ins, uint32_t at, bool started) {
  if (isImpure(ins)) {
    if (trace().operatorOf(ins) == Operator::kDropout && isKnown(ins)) {
      return addDropout(ins, started) || refuse("dropout of a tensor that is not contiguous");
    }
    return addInPlace(ins, started) || addBatchNorm(ins, started) || addInputWrite(ins) ||
           refuse(trace().opNames[ins.opName] + " writes to a tensor or draws random numbers");
  }
  bool active = false;
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    const TypeKind kind = trace().values[ins.firstResult + r].kind;
    if (kind != TypeKind::kTensor && kind != TypeKind::kNone) {
      return refuse("training with numbers that vary");
    }
    madeBy_[ins.firstResult + r] = at;
    active = active || isActive(ins.firstResult + r);
  }
  // An unknown operator: autograd may differentiate each result if it differentiates an operand.
  const bool off = graph_.gradAfter.has_value() && !*graph_.gradAfter;
  if (!off && makesUnknown(ins)) {
    return refuse("training with tensors of sizes or types that are not known to it");
  }
  if (active && !isKnown(ins)) {
    return refuse("training with tensors of sizes or types that are not known to it");
  }
  if (!started && (active || dropsGradient(ins))) {
    graph_.gradBefore = graph_.gradBefore.value_or(false) || active;
  }
  addForward(at);
  return true;
}

void ForwardReader::addForward(uint32_t at) {
  graph_.forward.push_back(at);
  sequence_.push_back(at);
  std::vector<ValueId> values;
  ir::collectValues(trace(), trace().operandsOf(trace().code[at]), values);
  used_.resize(trace().values.size(), false);
  for (const ValueId value : values) {
    used_[value] = true;
  }
}

// An operator that writes to a tensor of the segment's own, which nothing has read yet, becomes a new
// value.
bool ForwardReader::addInPlace(const Instruction ins, bool started) {
  const std::string name = ops::newForm(trace().opNames[ins.opName]);
  const Operator op = ops::find(name);
  const bool known = gradientOf(op) != nullptr;
  const auto span = trace().operandsOf(ins);
  const std::vector<Operand> operands(span.begin(), span.end());
  const bool off = graph_.gradAfter.has_value() && !*graph_.gradAfter;
  if (name.empty() || ops::has(op, Trait::kStoresOnly) || off || ins.resultCount != 1 || operands.empty() ||
      !operands[0].isValue() || (!known && isActive(ins.firstResult)) ||
      (known && !ops::has(op, Trait::kFresh)) || !isKnown(ins)) {
    return false;
  }
  const ValueId target = operands[0].id;
  if (std::any_of(operands.begin() + 1, operands.end(),
                  [&](const Operand& o) { return o.isValue() && o.id == target; })) {
    return false;  // the derivative would need the elements that are overwritten
  }
  used_.resize(trace().values.size(), false);
  const uint32_t maker = madeBy_[target];
  if (maker == ir::kNone || used_[target] || !computesSameForm(ins, operands) ||
      !ops::has(trace().operatorOf(trace().code[maker]), Trait::kForgetsResult)) {
    return false;
  }
  const ir::Type type = trace().values[ins.firstResult];
  const ValueId made = static_cast<ValueId>(trace().values.size());
  const auto rename = [&](Operand& o) {
    if (o.isValue() && (o.id == target || o.id == ins.firstResult)) {
      o.id = made;
    }
  };
  std::for_each(trace().operands.begin(), trace().operands.end(), rename);
  std::for_each(trace().lists.begin(), trace().lists.end(), rename);
  const auto index = static_cast<uint32_t>(trace().append(Op::kAten, operands, {&type, 1}));
  trace().code[index].opName = trace().internOpName(name);
  madeBy_.resize(trace().values.size(), ir::kNone);
  madeBy_[made] = index;
  if (!started && isActive(made)) {
    graph_.gradBefore = true;
  }
  addForward(index);
  return true;
}

// Is a value an input that the segment only writes to?
bool ForwardReader::isOnlyWritten(ValueId input) {
  if (std::find(graph_.inputs.begin(), graph_.inputs.end(), input) == graph_.inputs.end() ||
      isActive(input)) {
    return false;
  }
  std::vector<ValueId> values;
  for (const Instruction& ins : std::span(trace().code).first(segmentEnd_)) {
    if (ins.op != Op::kAten) {
      continue;
    }
    values.clear();
    ir::collectValues(trace(), trace().operandsOf(ins), values);
    const auto times = static_cast<size_t>(std::count(values.begin(), values.end(), input));
    const auto operands = trace().operandsOf(ins);
    const auto isAt = [&](size_t k) {
      return k < operands.size() && operands[k].isValue() && operands[k].id == input;
    };
    const std::string& name = trace().opNames[ins.opName];
    const bool norm = ops::find(name) == Operator::kBatchNorm;
    const size_t written = norm                   ? (isAt(3) ? 1U : 0U) + (isAt(4) ? 1U : 0U)
                           : ops::isInPlace(name) ? (isAt(0) ? 1U : 0U)
                                                  : 0;
    if (times > 1 || times != written) {
      return false;
    }
  }
  return true;
}

bool ForwardReader::isUsed(ValueId value) {
  std::vector<ValueId> values;
  for (const Instruction& ins : std::span(trace().code).first(segmentEnd_ + 1)) {
    ir::collectValues(trace(), trace().operandsOf(ins), values);
  }
  return std::find(values.begin(), values.end(), value) != values.end();
}

ValueId ForwardReader::heldBy(ValueId input) const {
  const auto found = stores_.find(input);
  return found != stores_.end() ? found->second.value : input;
}

uint32_t ForwardReader::appendForward(Operator op, std::span<const Operand> operands,
                                      std::span<const ir::Type> types) {
  const auto index = static_cast<uint32_t>(trace().append(Op::kAten, operands, types));
  trace().code[index].opName = trace().internOpName(op);
  madeBy_.resize(trace().values.size(), ir::kNone);
  for (uint32_t r = 0; r < types.size(); ++r) {
    madeBy_[trace().code[index].firstResult + r] = index;
  }
  addForward(index);
  return index;
}

// A write to an input that the segment does not read again (a counter, a running average): the input is
// written at the end of the run.
bool ForwardReader::addInputWrite(const Instruction ins) {
  const Operator op = ops::formOf(trace().opNames[ins.opName]);
  const auto span = trace().operandsOf(ins);
  std::vector<Operand> operands(span.begin(), span.end());
  if (!ops::isInPlace(trace().opNames[ins.opName]) || !givesFreshResults(op) ||
      ops::has(op, Trait::kStoresOnly) || ins.resultCount != 1 || operands.empty() ||
      !operands[0].isValue() || takesActive(ins) || isActive(ins.firstResult) || !isKnown(ins) ||
      !isOnlyWritten(operands[0].id) || isUsed(ins.firstResult) || !computesSameForm(ins, operands)) {
    return false;
  }
  const ValueId input = operands[0].id;
  operands[0] = Operand::value(heldBy(input));
  const ir::Type type = trace().values[ins.firstResult];
  const uint32_t index = appendForward(op, operands, {&type, 1});
  HeldInput& held = stores_[input];
  held = {trace().code[index].firstResult, held.times + 1};
  return true;
}

// Does the out-of-place form of an operator give a result with the dtype and layout of the tensor that is
// written?
bool ForwardReader::computesSameForm(const Instruction& ins, const std::vector<Operand>& operands) {
  const auto metaOf = [&](ValueId value) -> const ir::TensorDesc& {
    return trace().metas[trace().values[value].meta];
  };
  const ir::TensorDesc& target = metaOf(operands[0].id);
  const ir::TensorDesc& result = metaOf(ins.firstResult);
  if (result.sizes != target.sizes || result.dtype != target.dtype) {
    return false;
  }
  return std::all_of(operands.begin(), operands.end(), [&](const Operand& o) {
    if (o.kind == ir::OperandKind::kList) {
      return false;
    }
    if (!o.isValue()) {
      return true;
    }
    const ir::TensorDesc& meta = metaOf(o.id);
    return isPacked(meta) && (meta.dtype == target.dtype || meta.dtype == ir::DType::kBool) &&
           meta.sizes.size() <= target.sizes.size();
  });
}

bool ForwardReader::takesActive(const Instruction& ins) {
  std::vector<ValueId> used;
  ir::collectValues(trace(), trace().operandsOf(ins), used);
  return std::any_of(used.begin(), used.end(), [&](ValueId value) { return isActive(value); });
}

bool ForwardReader::makesUnknown(const Instruction& ins) {
  bool unknown = false;
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    const ir::Type& type = trace().values[ins.firstResult + r];
    unknown = unknown || (type.kind == TypeKind::kTensor && type.meta == ir::kNone);
  }
  return unknown && takesActive(ins);
}

// An input requires a gradient and a result of floats does not: the grad mode may have been off.
bool ForwardReader::dropsGradient(const Instruction& ins) {
  const bool taken = takesActive(ins);
  for (uint32_t r = 0; taken && r < ins.resultCount; ++r) {
    const ir::Type& type = trace().values[ins.firstResult + r];
    if (type.kind == TypeKind::kTensor &&
        (type.meta == ir::kNone || isFloat(elemOf(trace().metas[type.meta].dtype)))) {
      return true;
    }
  }
  return false;
}

bool ForwardReader::isImpure(const Instruction& ins) {
  return ir::isImpure(trace(), ins, options_.traits(trace().opNames[ins.opName]).impure);
}

bool ForwardReader::isKnown(const Instruction& ins) {
  std::vector<ValueId> values;
  ir::collectValues(trace(), trace().operandsOf(ins), values);
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    values.push_back(ins.firstResult + r);
  }
  return std::all_of(values.begin(), values.end(), [&](ValueId value) {
    const ir::Type& type = trace().values[value];
    if (type.kind != TypeKind::kTensor || !trace().hasFixedSizes(type)) {
      return false;
    }
    const ir::TensorDesc& meta = trace().metas[type.meta];
    return compilesFor(meta.device) && (isFloat(elemOf(meta.dtype)) || !meta.requiresGrad);
  });
}

}  // namespace kintsugi::passes
