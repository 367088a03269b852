// The part of ForwardReader that replaces a batch norm in training, or dropout, by several simple operators.
#include <algorithm>
#include <iterator>

#include "ops/operator.h"
#include "passes/forward_reader.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::TypeKind;
using ir::ValueId;
using ops::Operator;

// An operator of f32 that makes one contiguous tensor.
ValueId ForwardReader::compute(Operator op, std::initializer_list<Operand> operands,
                               std::vector<int64_t> sizes, bool active) {
  ir::TensorDesc meta = ir::TensorDesc::packed(ir::DType::kF32, std::move(sizes));
  meta.requiresGrad = active;
  const ir::Type type{TypeKind::kTensor, trace().internMeta(std::move(meta))};
  const std::vector<Operand> kept(operands);
  return trace().code[appendForward(op, kept, {&type, 1})].firstResult;
}

Operand ForwardReader::listOf(const std::vector<int64_t>& numbers) {
  std::vector<Operand> out;
  std::transform(numbers.begin(), numbers.end(), std::back_inserter(out), Operand::integer);
  return trace().listOperand(out);
}

// Is it a batch norm in training, with operands that the decomposition covers?
bool ForwardReader::isPlainBatchNorm(const Instruction& ins, const std::vector<Operand>& o) {
  constexpr size_t kTensors = 5, kCount = 9;
  if (trace().operatorOf(ins) != Operator::kBatchNorm || o.size() != kCount || !isKnown(ins) ||
      o[6].kind != ir::OperandKind::kFloat || o[7].kind != ir::OperandKind::kFloat) {
    return false;
  }
  for (size_t k = 0; k < kTensors; ++k) {
    if (!o[k].isValue()) {
      return false;
    }
    const ir::TensorDesc& meta = trace().metas[trace().values[o[k].id].meta];
    if (meta.dtype != ir::DType::kF32 || !isPacked(meta) || elementCount(fixedSizes(meta.sizes)) == 0 ||
        (k == 0 ? meta.sizes.size() < 2 : meta.sizes.size() != 1)) {
      return false;
    }
  }
  return o[3].id != o[4].id && isOnlyWritten(o[3].id) && isOnlyWritten(o[4].id);
}

// In GradientGraph::recompute the norm is ATen's own operator, so that autograd saves what it saves in
// eager mode. `dropped`: the results of the simple operators that replace it in the forward.
void ForwardReader::addNorm(TrainedNorm norm, const std::vector<ValueId>& dropped) {
  const auto span = trace().operandsOf(norm.ins);
  const std::vector<Operand> o(span.begin(), span.end());
  std::erase_if(sequence_, [&](uint32_t at) {
    const ValueId result = trace().code[at].firstResult;
    return result == norm.made || std::ranges::find(dropped, result) != dropped.end();
  });
  const ir::TensorDesc& mean = trace().metas[trace().values[o[3].id].meta];
  ir::TensorDesc statistic = mean;
  statistic.requiresGrad = statistic.isParam = false;
  const ir::Type flat{TypeKind::kTensor, trace().internMeta(std::move(statistic))};
  const ir::Type types[] = {trace().values[norm.made], flat, flat};
  const Operand operands[] = {o[0], o[1], o[2], Operand::boolean(true), o[6], o[7]};
  const auto whole = static_cast<uint32_t>(trace().append(Op::kAten, operands, types));
  trace().code[whole].opName = trace().internOpName(Operator::kPrivateNativeBatchNormLegitNoStats);
  madeBy_.resize(trace().values.size(), ir::kNone);
  sequence_.push_back(whole);
  norm.whole = trace().code[whole].firstResult;
  norms_.push_back(norm);
}

ir::Trace ForwardReader::makeRecompute() {
  ir::Trace from = trace();
  std::vector<ValueId> outputs = graph_.outputs;
  for (const TrainedNorm& norm : norms_) {
    const auto rename = [&](Operand& o) {
      if (o.isValue() && o.id == norm.made) o.id = norm.whole;
    };
    std::ranges::for_each(from.operands, rename);
    std::ranges::for_each(from.lists, rename);
    std::ranges::replace(outputs, norm.made, norm.whole);
  }
  return segmentOf(from, graph_.inputs, sequence_, outputs);
}

// (input, weight, bias, mean, variance, training, momentum, eps, cudnn) as simple operators. The running
// statistics are stored at the end of a run; eager mode does not raise their versions.
bool ForwardReader::addBatchNorm(const Instruction ins, bool started) {
  const auto span = trace().operandsOf(ins);
  const std::vector<Operand> o(span.begin(), span.end());
  if (!isPlainBatchNorm(ins, o)) {
    return false;
  }
  const std::vector<int64_t> sizes = trace().metas[trace().values[o[0].id].meta].sizes;
  const int64_t channels = sizes[1];
  const int64_t count = elementCount(fixedSizes(sizes)).hint / channels;
  if (count < 2) {
    return false;
  }
  std::vector<int64_t> each(sizes.size(), 1), dims;
  each[1] = channels;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d != 1) {
      dims.push_back(static_cast<int64_t>(d));
    }
  }
  const auto val = Operand::value;
  const auto num = Operand::number;
  const Operand one = Operand::integer(1), over = listOf(dims), wide = listOf(each);
  const Operand flat = listOf({channels});
  const bool follows = isActive(o[0].id);
  const auto meanOf = [&](Operand of) {
    return compute(Operator::kMeanDim, {of, over, Operand::boolean(true), Operand::none()}, each, follows);
  };
  const auto perChannel = [&](Operand of) {
    return val(compute(Operator::kView, {of, wide}, each, isActive(of.id)));
  };
  const ValueId mean = meanOf(o[0]);
  const Operand centered = val(compute(Operator::kSubTensor, {o[0], val(mean), one}, sizes, follows));
  const ValueId variance = meanOf(val(compute(Operator::kMulTensor, {centered, centered}, sizes, follows)));
  const ValueId sum = compute(Operator::kAddTensor, {val(variance), num(o[7].f), one}, each, follows);
  const ValueId scale = compute(Operator::kRsqrt, {val(sum)}, each, follows);
  const ValueId unit = compute(Operator::kMulTensor, {centered, val(scale)}, sizes, follows);
  const bool weighed = follows || isActive(o[1].id);
  const Operand weight = perChannel(o[1]), bias = perChannel(o[2]);
  const ValueId product = compute(Operator::kMulTensor, {val(unit), weight}, sizes, weighed);
  const Operand last[] = {val(product), bias, one};
  const auto made = static_cast<ValueId>(trace().values.size());
  const auto rename = [&](Operand& operand) {
    if (operand.isValue() && operand.id == ins.firstResult) {
      operand.id = made;
    }
  };
  std::for_each(trace().operands.begin(), trace().operands.end(), rename);
  std::for_each(trace().lists.begin(), trace().lists.end(), rename);
  const ir::Type type = trace().values[ins.firstResult];
  appendForward(Operator::kAddTensor, last, {&type, 1});
  addNorm({.ins = ins, .mean = mean, .scale = scale, .made = made},
          {scale, unit, weight.id, bias.id, product});
  const double momentum = o[6].f;
  const auto keep = [&](ValueId input, ValueId seen, double factor) {
    const std::vector<int64_t> size{channels};
    const ValueId now = compute(Operator::kView, {val(seen), flat}, size, false);
    const ValueId old = compute(Operator::kMulTensor, {val(heldBy(input)), num(1 - momentum)}, size, false);
    const ValueId more = compute(Operator::kMulTensor, {val(now), num(factor)}, size, false);
    const ValueId held = compute(Operator::kAddTensor, {val(old), val(more), one}, size, false);
    stores_[input] = {held, stores_[input].times};
  };
  keep(o[3].id, mean, momentum);
  keep(o[4].id, variance, momentum * static_cast<double>(count) / static_cast<double>(count - 1));
  if (!started && isActive(made)) {
    graph_.gradBefore = true;
  }
  return true;
}

// As ATen computes it: each element of the mask is one with probability 1 - p, is divided by that, and
// multiplied with the input. Only if the order of the mask's elements in memory is that in which ATen draws
// random numbers.
bool ForwardReader::addDropout(const Instruction ins, bool started) {
  const Operand self = trace().operandsOf(ins)[0], probability = trace().operandsOf(ins)[1];
  const bool isFloat = probability.kind == ir::OperandKind::kFloat;
  ir::TensorDesc meta = trace().metas[trace().values[self.id].meta];
  const double keep = isFloat ? 1 - probability.f : 0;
  const std::vector<Size> sizes = fixedSizes(meta.sizes);
  if (!isFloat || keep <= 0 || keep >= 1 || !isPacked(meta) || elementCount(sizes) == 0) {
    return false;
  }
  meta.requiresGrad = meta.isParam = false;
  const ir::Type type{TypeKind::kTensor, trace().internMeta(std::move(meta))};
  const ValueId mask = trace().addValue(type);
  masks_.push_back(mask);
  graph_.maskProbabilities.push_back(keep);
  const auto add = [&](Operator op, std::initializer_list<Operand> operands, ir::Type made) {
    const size_t index = trace().append(Op::kAten, std::span(operands.begin(), operands.size()), {&made, 1});
    trace().code[index].opName = trace().internOpName(op);
    madeBy_.resize(trace().values.size(), ir::kNone);
    addForward(static_cast<uint32_t>(index));
    return index;
  };
  const size_t scaled = add(Operator::kDivTensor, {Operand::value(mask), Operand::number(keep)}, type);
  const Operand noise = Operand::value(trace().code[scaled].firstResult);
  const size_t product = add(Operator::kMulTensor, {self, noise}, trace().values[ins.firstResult]);
  trace().code[product].firstResult = ins.firstResult;
  madeBy_[noise.id] = static_cast<uint32_t>(scaled);
  madeBy_[ins.firstResult] = static_cast<uint32_t>(product);
  if (!started && isActive(ins.firstResult)) {
    graph_.gradBefore = true;
  }
  return true;
}

const TrainedNorm* ForwardReader::normOf(ValueId result) const {
  const auto norm = std::ranges::find(norms_, result, &TrainedNorm::made);
  return norm != norms_.end() ? &*norm : nullptr;
}

}  // namespace kintsugi::passes
