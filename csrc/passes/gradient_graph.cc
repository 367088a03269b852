#include "passes/gradient_graph.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "ir/printer.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "ops/pseudo_operators.h"
#include "passes/build_graph.h"
#include "passes/extract_segment.h"
#include "passes/forward_reader.h"
#include "passes/gradient_builder.h"
#include "passes/kept_by_eager.h"
#include "passes/requires_grad.h"
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

class Differentiator : private ForwardReader {
 public:
  using ForwardReader::ForwardReader;

  std::optional<GradientGraph> run() {
    if (!readSegment()) {
      return std::nullopt;
    }
    placeResults();
    std::vector<std::vector<uint32_t>> before(graph_.forward.size());
    GradientBuilder builder(graph_, options_, before);
    addIncoming(builder);
    SavedReads reads(graph_, madeBy_, graph_.inputs.size() - graph_.maskProbabilities.size());
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
  // Divides the segment's results: the node makes tensors that operators allocate, the epilogue makes views.
  void placeResults() {
    inEpilogue_.assign(trace().code.size(), false);
    for (const ValueId value : graph_.results) {
      need(value);
    }
    for (const auto& [input, held] : stores_) {
      graph_.outputs.push_back(held.value);
    }
    std::sort(graph_.outputs.begin(), graph_.outputs.end());
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
    const TrainedNorm* norm = normOf(ins.firstResult);
    const Instruction recorded = norm != nullptr ? norm->ins : ins;
    std::vector<KeptByEager> kept = keptByEager(trace(), recorded);
    const size_t first = graph_.backward.size();
    builder.start(position, kept);
    addFollowed(recorded, node);
    if (keepsAny(trace(), recorded)) graph_.holders.push_back(node);
    if (norm != nullptr) {
      const auto o = trace().operandsOf(recorded);
      batchNorm(builder, {o[0].id, o[1].id, o[2].id, norm->mean, norm->scale});
    } else if (rule->make == nullptr || !rule->make(builder)) {
      // A taped operator runs in a graph of its own: it must not return its argument, and the tensors that it
      // saves have to exist.
      if (!ops::has(op, Trait::kFresh) && !multiplies(ins))
        return refuse("there is no derivative of this " + name);
      return builder.tape() && noteTape(first, node);
    }
    const Instruction& now =
        trace().code[graph_.forward[position]];  // the rule may have replaced the operator
    for (KeptByEager& each : kept) {
      if (each.value == ins.firstResult) each.value = now.firstResult;
    }
    reads.note(kept, node);
    return reads.redirectReads(kept, first) ||
           refuse("the derivative of " + name + " reads what autograd does not keep");
  }

  void addFollowed(const Instruction& ins, SavedByEager& node) {
    ir::collectValues(trace(), trace().operandsOf(ins), node.followed);
    std::erase_if(node.followed, [&](ValueId value) { return !isActive(value); });
  }

  // Notes the tapes that the backward runs for `node`, and the copies (clones, conversions) that they save.
  // Kernels would leave out a copy that converts nothing, and the tape would save memory that the program can
  // write to.
  bool noteTape(size_t first, const SavedByEager& node) {
    for (const uint32_t at : std::span(graph_.backward).subspan(first)) {
      if (trace().opNames[trace().code[at].opName] == ops::kTapedGradients)
        graph_.tapes.emplace_back(at, node);
    }
    for (ValueId value : node.followed) {
      for (uint32_t at = makerOf(value); at != ir::kNone; at = makerOf(value)) {
        const Operator op = trace().operatorOf(trace().code[at]);
        const bool looks = sharingOf(trace(), trace().code[at]) != Sharing::kNone;
        if (ops::has(op, Trait::kCopies)) copies_.push_back(at);
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

  std::vector<uint32_t> copies_;  // instructions that make the tensors that tapes save
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

std::string print(const GradientGraph& graph) {
  const auto there = [](ValueId value) { return value != ir::kNone; };
  std::vector<ValueId> inputs = graph.inputs, outputs = graph.outputs;
  std::ranges::copy_if(graph.incoming, std::back_inserter(inputs), there);
  std::ranges::copy_if(graph.gradients, std::back_inserter(outputs), there);
  std::vector<uint32_t> code = graph.forward;
  code.insert(code.end(), graph.backward.begin(), graph.backward.end());
  return ir::print(segmentOf(graph.trace, inputs, code, outputs));
}

bool isFollowed(const ir::Trace& trace, const Instruction& ins) {
  // Views of tensors that require gradients require them too, even with the grad mode off.
  const Operator op = trace.operatorOf(ins);
  if (ins.op != Op::kAten || (gradientOf(op) != nullptr && !ops::has(op, Trait::kFresh))) {
    return false;
  }
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    if (requiresGrad(trace, ins.firstResult + r)) {
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
