#include "passes/gradient_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "ir/quiet_ops.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "ops/pseudo_operators.h"
#include "passes/build_graph.h"
#include "passes/extract_segment.h"
#include "passes/gradient_builder.h"
#include "passes/kept_by_eager.h"
#include "passes/saved_reads.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::TypeKind;
using ir::ValueId;
using ops::Operator;
using ops::Trait;

namespace {

bool isPacked(const ir::TensorDesc& meta) {
  return meta.strides.empty() || meta.strides == ir::packedStrides(meta.sizes);
}

// Is there a derivative rule, and does the operator allocate its results?
bool givesFreshResults(Operator op) { return gradientOf(op) != nullptr && ops::has(op, Trait::kFresh); }

class Differentiator {
 public:
  Differentiator(const ir::Trace& segment, const GradientOptions& options, std::string& reason)
      : options_(options), reason_(reason), madeBy_(segment.values.size(), ir::kNone) {
    graph_.trace = segment;
  }

  std::optional<GradientGraph> run() {
    if (!readSegment()) {
      return std::nullopt;
    }
    placeResults();
    std::vector<std::vector<uint32_t>> before(graph_.forward.size());
    GradientBuilder builder(graph_, before);
    addIncoming(builder);
    SavedReads reads(graph_, madeBy_, graph_.inputs.size() - graph_.draws.size());
    for (size_t k = graph_.forward.size(); k-- > 0;) {
      if (!differentiateOne(builder, reads, k)) {
        return std::nullopt;
      }
    }
    reads.redirectLeaves();
    makeCopies();
    bool any = false;
    for (const ValueId input : graph_.inputs) {
      graph_.gradients.push_back(builder.isActive(input) ? builder.gradientOf(input) : ir::kNone);
      any = any || graph_.gradients.back() != ir::kNone;
    }
    if (!any && !graph_.outputs.empty()) {
      refuse("no gradient of its results reaches an input");
      return std::nullopt;
    }
    std::vector<uint32_t> forward;
    for (size_t k = 0; k < before.size(); ++k) {
      forward.insert(forward.end(), before[k].begin(), before[k].end());
      forward.push_back(graph_.forward[k]);
    }
    graph_.forward = std::move(forward);
    return std::move(graph_);
  }

 private:
  ir::Trace& trace() { return graph_.trace; }

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool isImpure(const Instruction& ins) {
    return ir::isImpure(trace(), ins, options_.traits(trace().opNames[ins.opName]).impure);
  }

  bool isActive(ValueId value) {
    const ir::Type& type = trace().values[value];
    return type.kind == TypeKind::kTensor && type.meta != ir::kNone && trace().metas[type.meta].requiresGrad;
  }

  // Are all tensors of an operator that autograd follows known, and such as rules can work with?
  bool isKnown(const Instruction& ins) {
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
      return meta.device.isCpu() && (isFloat(elemOf(meta.dtype)) || !meta.requiresGrad);
    });
  }

  bool readSegment() {
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

  bool readOperator(const Instruction& ins, uint32_t at, bool started) {
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

  void addForward(uint32_t at) {
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
  bool addInPlace(const Instruction ins, bool started) {
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
    writes_[made] = writes_[target] + 1;
    if (!started && isActive(made)) {
      graph_.gradBefore = true;
    }
    addForward(index);
    return true;
  }

  // Is a value an input that the segment only writes to?
  bool isOnlyWritten(ValueId input) {
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

  bool isUsed(ValueId value) {
    std::vector<ValueId> values;
    for (const Instruction& ins : std::span(trace().code).first(segmentEnd_ + 1)) {
      ir::collectValues(trace(), trace().operandsOf(ins), values);
    }
    return std::find(values.begin(), values.end(), value) != values.end();
  }

  ValueId heldBy(ValueId input) const {
    const auto found = stores_.find(input);
    return found != stores_.end() ? found->second.value : input;
  }

  uint32_t appendForward(Operator op, std::span<const Operand> operands, std::span<const ir::Type> types) {
    const auto index = static_cast<uint32_t>(trace().append(Op::kAten, operands, types));
    trace().code[index].opName = trace().internOpName(op);
    madeBy_.resize(trace().values.size(), ir::kNone);
    for (uint32_t r = 0; r < types.size(); ++r) {
      madeBy_[trace().code[index].firstResult + r] = index;
    }
    addForward(index);
    return index;
  }

  // A store to an input that the segment does not read again (a counter, a running average): it is made at
  // the end.
  bool addInputWrite(const Instruction ins) {
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
    Held& held = stores_[input];
    held = {trace().code[index].firstResult, held.times + 1};
    return true;
  }

  // An operator of f32 that makes one contiguous tensor.
  ValueId compute(Operator op, std::initializer_list<Operand> operands, std::vector<int64_t> sizes,
                  bool active) {
    ir::TensorDesc meta = ir::TensorDesc::packed(ir::DType::kF32, std::move(sizes));
    meta.requiresGrad = active;
    const ir::Type type{TypeKind::kTensor, trace().internMeta(std::move(meta))};
    const std::vector<Operand> kept(operands);
    return trace().code[appendForward(op, kept, {&type, 1})].firstResult;
  }

  Operand listOf(const std::vector<int64_t>& numbers) {
    std::vector<Operand> out;
    std::transform(numbers.begin(), numbers.end(), std::back_inserter(out), Operand::integer);
    return trace().listOperand(out);
  }

  // Is it a batch norm in training, with operands that the decomposition covers?
  bool isPlainBatchNorm(const Instruction& ins, const std::vector<Operand>& o) {
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

  struct BatchNorm {
    Instruction ins;  // as it was recorded
    ValueId mean = ir::kNone, scale = ir::kNone;
    ValueId made = ir::kNone;   // its result
    ValueId whole = ir::kNone;  // the result of ATen's own operator, in GradientGraph::recompute
  };

  // In GradientGraph::recompute the norm is ATen's own operator, so that autograd saves what it saves in
  // eager mode. `dropped`: the results of the single operators that stand for it in the forward.
  void addNorm(BatchNorm norm, const std::vector<ValueId>& dropped) {
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

  // The segment as it was recorded, but for the norms.
  ir::Trace makeRecompute() {
    ir::Trace from = trace();
    std::vector<ValueId> outputs = graph_.outputs;
    for (const BatchNorm& norm : norms_) {
      const auto rename = [&](Operand& o) {
        if (o.isValue() && o.id == norm.made) o.id = norm.whole;
      };
      std::ranges::for_each(from.operands, rename);
      std::ranges::for_each(from.lists, rename);
      std::ranges::replace(outputs, norm.made, norm.whole);
    }
    return segmentOf(from, graph_.inputs, sequence_, outputs);
  }

  // (input, weight, bias, mean, variance, training, momentum, eps, cudnn) in single operators. The statistics
  // are stored later; eager mode does not count those stores.
  bool addBatchNorm(const Instruction ins, bool started) {
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

  // Does the out-of-place form of an operator give a result with the dtype and layout of the tensor that is
  // written?
  bool computesSameForm(const Instruction& ins, const std::vector<Operand>& operands) {
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

  // As ATen does: ones of the mask are drawn with probability 1 - p, divided by it, and multiplied with the
  // input. Only if the mask's layout is the order in which ATen draws numbers.
  bool addDropout(const Instruction ins, bool started) {
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
    graph_.draws.push_back(keep);
    const auto add = [&](Operator op, std::initializer_list<Operand> operands, ir::Type made) {
      const size_t index =
          trace().append(Op::kAten, std::span(operands.begin(), operands.size()), {&made, 1});
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

  bool takesActive(const Instruction& ins) {
    std::vector<ValueId> used;
    ir::collectValues(trace(), trace().operandsOf(ins), used);
    return std::any_of(used.begin(), used.end(), [&](ValueId value) { return isActive(value); });
  }

  bool makesUnknown(const Instruction& ins) {
    bool unknown = false;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ir::Type& type = trace().values[ins.firstResult + r];
      unknown = unknown || (type.kind == TypeKind::kTensor && type.meta == ir::kNone);
    }
    return unknown && takesActive(ins);
  }

  // An input requires a gradient and a result of floats does not: the grad mode may have been off.
  bool dropsGradient(const Instruction& ins) {
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

  // What leaves the segment: made again by the node, or after it.
  void placeResults() {
    inEpilogue_.assign(trace().code.size(), false);
    for (const ValueId value : graph_.results) {
      need(value);
    }
    for (const auto& [input, held] : stores_) {
      graph_.outputs.push_back(held.value);
    }
    std::sort(graph_.outputs.begin(), graph_.outputs.end());
    for (const ValueId output : graph_.outputs) graph_.versions.push_back(writes_[output]);
    for (const auto& [input, held] : stores_) {
      const auto indexIn = [](const std::vector<ValueId>& values, ValueId value) {
        return static_cast<uint32_t>(std::find(values.begin(), values.end(), value) - values.begin());
      };
      graph_.stores.push_back(
          {indexIn(graph_.inputs, input), indexIn(graph_.outputs, held.value), held.times});
    }
    graph_.inputs.insert(graph_.inputs.end(), masks_.begin(), masks_.end());
    graph_.recompute = makeRecompute();
    graph_.program = sequence_;
    for (const uint32_t at : sequence_) {
      if (inEpilogue_[at] || trace().code[at].op == Op::kSetGrad) {
        graph_.epilogue.push_back(at);
      }
    }
  }

  void need(ValueId value) {
    const uint32_t at = madeBy_[value];
    if (at == ir::kNone ||
        std::find(graph_.outputs.begin(), graph_.outputs.end(), value) != graph_.outputs.end()) {
      return;
    }
    const Instruction& ins = trace().code[at];
    const bool copies = ops::has(trace().operatorOf(ins), Trait::kMayCopy) &&
                        sharingOf(trace(), ins) == Sharing::kNone && isKnown(ins);
    if (copies || givesFreshResults(trace().operatorOf(ins))) {
      graph_.outputs.push_back(value);
      return;
    }
    if (!inEpilogue_[at]) {
      inEpilogue_[at] = true;
      std::vector<ValueId> used;
      ir::collectValues(trace(), trace().operandsOf(ins), used);
      for (const ValueId argument : used) {
        need(argument);
      }
    }
  }

  // A contiguous gradient for each result that autograd follows.
  void addIncoming(GradientBuilder& builder) {
    for (const ValueId output : graph_.outputs) {
      graph_.incoming.push_back(ir::kNone);
      if (isActive(output)) {
        const ir::MetaId id =
            trace().internMeta(ir::TensorDesc::packed(builder.dtype(output), builder.sizes(output)));
        graph_.incoming.back() = trace().addValue({TypeKind::kTensor, id});
        builder.accumulateInto(output, graph_.incoming.back());
      }
    }
  }

  // An einsum of one tensor may be a view; of several it is a product.
  bool multiplies(const Instruction& ins) {
    const auto operands = trace().operandsOf(ins);
    return trace().operatorOf(ins) == Operator::kEinsum && operands.size() > 1 &&
           operands[1].kind == ir::OperandKind::kList && trace().listOf(operands[1]).size() > 1;
  }

  bool differentiateOne(GradientBuilder& builder, SavedReads& reads, size_t position) {
    const Instruction ins = trace().code[graph_.forward[position]];
    SavedByEager node;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ValueId gradient = builder.gradientOf(ins.firstResult + r);
      if (gradient != ir::kNone) node.arriving.push_back(gradient);
    }
    if (node.arriving.empty()) {
      return true;
    }
    const std::string name = trace().opNames[ins.opName];
    const Operator op = ops::find(name);
    const GradientRule* rule = gradientOf(op);
    if (rule == nullptr) {
      return refuse("there is no derivative of " + name);
    }
    // A norm consists of several operators; eager mode has one node.
    const BatchNorm* norm = normOf(ins.firstResult);
    const Instruction recorded = norm != nullptr ? norm->ins : ins;
    std::vector<KeptByEager> kept = keptByEager(trace(), recorded);
    const size_t first = graph_.backward.size();
    builder.start(position, kept);
    addFollowed(recorded, node);
    node.at = placeOf(norm != nullptr ? madeBy_[norm->whole] : graph_.forward[position]);
    if (keepsAny(trace(), recorded)) graph_.holders.push_back(node);
    if (norm != nullptr) {
      const auto o = trace().operandsOf(recorded);
      batchNorm(builder, {o[0].id, o[1].id, o[2].id, norm->mean, norm->scale});
    } else if (rule->make == nullptr || !rule->make(builder)) {
      // A taped operator runs in a graph of its own: it must not return its argument, and what it saves has
      // to exist.
      if (!ops::has(op, Trait::kFresh) && !multiplies(ins))
        return refuse("there is no derivative of this " + name);
      return builder.tape() && noteTape(first, node);
    }
    const Instruction& now = trace().code[graph_.forward[position]];  // perhaps another one
    for (KeptByEager& each : kept) {
      if (each.value == ins.firstResult) each.value = now.firstResult;
    }
    reads.note(kept, node);
    return reads.redirectReads(kept, first) ||
           refuse("the derivative of " + name + " reads what autograd does not keep");
  }

  // Of an operator: its number in `recompute`, where the first instruction is a mark.
  uint32_t placeOf(uint32_t at) const {
    return static_cast<uint32_t>(std::ranges::find(sequence_, at) - sequence_.begin() + 1);
  }

  void addFollowed(const Instruction& ins, SavedByEager& node) {
    ir::collectValues(trace(), trace().operandsOf(ins), node.followed);
    std::erase_if(node.followed, [&](ValueId value) { return !isActive(value); });
  }

  // Notes the tapes that the backward runs for `node`, and the copies (clones, conversions) that they save.
  // Kernels would leave such a copy out, and the tape would save memory that the program can write to.
  bool noteTape(size_t first, const SavedByEager& node) {
    for (const uint32_t at : std::span(graph_.backward).subspan(first)) {
      if (trace().opNames[trace().code[at].opName] == ops::kTapedGradients)
        graph_.tapes.emplace_back(at, node);
    }
    for (ValueId value : node.followed) {
      for (uint32_t at = makerOf(value); at != ir::kNone; at = makerOf(value)) {
        const Operator op = trace().operatorOf(trace().code[at]);
        const bool looks = sharingOf(trace(), trace().code[at]) != Sharing::kNone;
        constexpr Operator kCopies[] = {Operator::kClone, Operator::kPrivateToCopy, Operator::kToDtype,
                                        Operator::kToOther};
        if (std::ranges::find(kCopies, op) != std::end(kCopies)) copies_.push_back(at);
        if (!looks) break;
        value = trace().operandsOf(trace().code[at])[0].id;
      }
    }
    return true;
  }
  uint32_t makerOf(ValueId value) const { return value < madeBy_.size() ? madeBy_[value] : ir::kNone; }

  void makeCopies() {
    for (const uint32_t at : copies_) {
      Instruction& ins = trace().code[at];
      const ir::TensorDesc& from = trace().metas[trace().values[trace().operandsOf(ins)[0].id].meta];
      const ir::TensorDesc& to = trace().metas[trace().values[ins.firstResult].meta];
      if (from.dtype != to.dtype || sharingOf(trace(), ins) != Sharing::kNone) continue;
      ins.opName = trace().internOpName(Operator::kAliasCopy);
      ins.operandCount = 1;
    }
  }

  const BatchNorm* normOf(ValueId result) const {
    const auto norm = std::ranges::find(norms_, result, &BatchNorm::made);
    return norm != norms_.end() ? &*norm : nullptr;
  }

  const GradientOptions& options_;
  std::string& reason_;
  GradientGraph graph_;
  std::vector<uint32_t> madeBy_;        // by value: the instruction
  std::map<ValueId, uint32_t> writes_;  // in place, that have become new values
  std::vector<uint32_t> sequence_;      // operators and changes of the grad mode, in order
  std::vector<bool> used_;              // by value: an operator has taken it
  // Inputs that are written to: their present contents, and the number of writes that eager mode counts.
  struct Held {
    ValueId value = ir::kNone;
    uint32_t times = 0;
  };
  std::map<ValueId, Held> stores_;
  std::vector<BatchNorm> norms_;
  std::vector<uint32_t> copies_;  // instructions that make what tapes keep
  size_t segmentEnd_ = 0;         // the place of its mark
  std::vector<ValueId> masks_;
  std::vector<bool> inEpilogue_;  // by instruction
};

}  // namespace

ir::Trace segmentOf(const ir::Trace& from, const std::vector<ValueId>& inputs,
                    const std::vector<uint32_t>& code, const std::vector<ValueId>& outputs) {
  ir::Trace trace = from;
  trace.code.clear();
  const auto mark = [&](Op op, const std::vector<ValueId>& values) {
    std::vector<Operand> operands;
    std::transform(values.begin(), values.end(), std::back_inserter(operands), Operand::value);
    const Operand list = trace.listOperand(operands);
    trace.append(op, {&list, 1}, {});
  };
  mark(Op::kSegment, inputs);
  for (const uint32_t at : code) {
    trace.code.push_back(from.code[at]);
  }
  mark(Op::kSegmentEnd, outputs);
  return extractSegment(trace, {0, static_cast<uint32_t>(trace.code.size() - 1)});
}

namespace {

// Does the segment write to an input that requires a gradient? With the grad mode on, autograd would record
// the write, which native code can't: the run declines. With it off, nothing is recorded.
bool writesToInput(const ir::Trace& segment, const Instruction& ins) {
  const std::string_view name = segment.opNames[ins.opName];
  const auto operands = segment.operandsOf(ins);
  std::vector<ValueId> inputs;
  ir::collectValues(segment, segment.operandsOf(segment.code.front()), inputs);
  return ops::isInPlace(name) && !operands.empty() && operands[0].isValue() &&
         std::find(inputs.begin(), inputs.end(), operands[0].id) != inputs.end();
}

}  // namespace

bool isFollowed(const ir::Trace& trace, const Instruction& ins) {
  // Views of tensors that require gradients require them too, even with the grad mode off.
  const Operator op = trace.operatorOf(ins);
  if (ins.op != Op::kAten || (gradientOf(op) != nullptr && !ops::has(op, Trait::kFresh))) {
    return false;
  }
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    const ir::Type& type = trace.values[ins.firstResult + r];
    if (type.kind == TypeKind::kTensor && type.meta != ir::kNone && trace.metas[type.meta].requiresGrad) {
      return true;
    }
  }
  return false;
}

bool needsGradients(const ir::Trace& segment) {
  return std::any_of(segment.code.begin(), segment.code.end(), [&](const Instruction& ins) {
    return isFollowed(segment, ins) && !writesToInput(segment, ins);
  });
}

std::optional<GradientGraph> differentiate(const ir::Trace& segment, const GradientOptions& options,
                                           std::string& reason) {
  return Differentiator(segment, options, reason).run();
}

}  // namespace kintsugi::passes
