#include "driver/native_plan_builder.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/kernel_cache.h"
#include "driver/fx_segments.h"
#include "ir/dtype.h"
#include "ir/segments.h"
#include "passes/build_graph.h"
#include "passes/fuse.h"
#include "passes/simplify_graph.h"
#include "support/check.h"

namespace kintsugi::driver {

namespace {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::ValueId;
using passes::Node;
using passes::NodeId;
using passes::NodeKind;
using runtime::GradSetting;
using runtime::NativePlan;
using runtime::NativeStepKind;

// The grad modes that the operators of a segment run in.
struct GradModes {
  bool known = true;
  std::vector<GradSetting> of;  // by instruction
  bool outside = false;         // some operator runs in the mode that the segment starts in
  bool on = false;              // ... with the mode on, whatever it is outside
  std::optional<bool> after;    // what the segment leaves
};

GradModes gradModesOf(const ir::Trace& segment) {
  GradModes modes;
  for (const Instruction& ins : segment.code) {
    if (ins.op == Op::kSetGrad) {
      const Operand& mode = segment.operandsOf(ins)[0];
      modes.known = modes.known && mode.kind == ir::OperandKind::kBool;
      modes.after = mode.i != 0;
    } else if (ins.op == Op::kAten) {
      modes.outside = modes.outside || !modes.after;
      modes.on = modes.on || modes.after.value_or(false);
    }
    modes.of.push_back(!modes.after ? GradSetting::kOutside
                                    : (*modes.after ? GradSetting::kOn : GradSetting::kOff));
  }
  return modes;
}

class PlanBuilder {
 public:
  PlanBuilder(const ir::Trace& segment, const passes::TensorGraph& graph,
              const passes::NativeProgram& program, const GradModes& modes)
      : modes_(modes),
        calls_(segment),
        segment_(segment),
        graph_(graph),
        program_(program),
        escapes_(passes::escapingNodes(graph)),
        plan_(std::make_unique<NativePlan>()) {}

  std::unique_ptr<NativePlan> run(bool strict, std::string& reason) {
    giveSlots();
    for (const passes::NativeStep& step : program_.steps) {
      const bool ok = step.kind == passes::StepKind::kKernel
                          ? addKernel(program_.kernels[step.kernel], strict, reason)
                      : step.kind == passes::StepKind::kCall ? addCall(step.node, reason)
                                                             : addView(step.node, reason);
      if (!ok) {
        return nullptr;
      }
    }
    for (const NodeId id : graph_.outputs) {
      plan_->outputs.push_back(id == ir::kNone ? ir::kNone : slotOf_[id]);
    }
    findDrops();
    plan_->slotCount = calls_.values.size();
    return std::move(plan_);
  }

 private:
  // A slot for each node, the inputs first. What calls return needs neighbouring slots, which come behind.
  void giveSlots() {
    calls_.values.assign(graph_.nodes.size() + graph_.inputs.size(), {ir::TypeKind::kTensor, ir::kNone});
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      slotOf_.push_back(static_cast<uint32_t>(graph_.inputs.size() + id));
    }
    for (size_t k = 0; k < graph_.inputs.size(); ++k) {
      slotOf_[graph_.inputs[k]] = static_cast<uint32_t>(k);
    }
  }

  torchapi::TensorLayout layoutOf(const Node& node) const {
    const std::string_view dtype =
        node.value != ir::kNone ? std::string_view(segment_.metas[segment_.values[node.value].meta].dtype)
                                : passes::elemName(node.elem);
    return {static_cast<int8_t>(ir::dtypeNumber(dtype).value()), node.sizes, node.strides};
  }

  void addStep(NativeStepKind kind, size_t index, std::vector<uint32_t> uses, std::vector<uint32_t> makes) {
    plan_->steps.push_back({kind, static_cast<uint32_t>(index)});
    uses.insert(uses.end(), makes.begin(), makes.end());
    usedBy_.push_back(std::move(uses));
  }

  bool addKernel(const passes::Kernel& kernel, bool strict, std::string& reason) {
    runtime::NativeKernel out;
    const auto code = codegen::compileKernel(kernel, strict, reason);
    if (code == nullptr) {
      return false;
    }
    out.function = code->function;
    out.code = code;
    std::vector<uint32_t> uses, makes;
    for (const passes::KernelAccess& access : kernel.accesses) {
      const uint32_t slot = slotOf_[access.node];
      out.memory.push_back({slot, access.offset * passes::elemSize(access.elem)});
      if (access.store) {
        out.made.push_back({slot, layoutOf(graph_.nodes[access.node])});
      }
      (access.store ? makes : uses).push_back(slot);
    }
    out.numbers.push_back(kernel.sizes.back());
    out.numbers.insert(out.numbers.end(), kernel.sizes.begin(), kernel.sizes.end() - 1);
    for (const passes::KernelAccess& access : kernel.accesses) {
      out.numbers.insert(out.numbers.end(), access.strides.begin(), access.strides.end());
    }
    giveWork(kernel, out);
    plan_->kernels.push_back(std::move(out));
    addStep(NativeStepKind::kKernel, plan_->kernels.size() - 1, std::move(uses), std::move(makes));
    return true;
  }

  // How much there is to do, and how much of it is worth a thread.
  static void giveWork(const passes::Kernel& kernel, runtime::NativeKernel& out) {
    constexpr int64_t kWorthAThread = 65536;  // cheap operations on elements
    int64_t cost = 0;
    for (const passes::KernelOp& op : kernel.ops) {
      const bool costly = op.kind == passes::KernelOpKind::kPoint &&
                          passes::coreInfo(op.op).cost == passes::CoreCost::kCostly;
      cost += costly ? 8 : 1;
    }
    const bool flat = kernel.outerRank() == 0 && !kernel.hasReductions;
    out.count = 1;
    for (size_t d = 0; d < kernel.outerRank(); ++d) {
      out.count *= kernel.sizes[d];
    }
    out.count = flat ? kernel.sizes.back() : out.count;
    const int64_t unit = flat ? cost : cost * std::max<int64_t>(1, kernel.sizes.back());
    out.grain = std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(1, unit));
  }

  // The operand's values replaced by slots, in the order in which collectValues() names them.
  void rename(std::span<Operand> operands, std::span<const uint32_t> slots, size_t& next) {
    for (Operand& o : operands) {
      if (o.isValue()) {
        o = Operand::value(slots[next++]);
      } else if (o.kind == ir::OperandKind::kList) {
        rename({calls_.lists.data() + o.id, o.count}, slots, next);
      }
    }
  }

  // The instruction on slots; its results get new ones.
  bool makeCall(uint32_t at, const std::vector<NodeId>& args, const std::vector<bool>& used, bool whole,
                std::string& reason) {
    Instruction& ins = calls_.code[at];
    std::vector<uint32_t> slots;
    for (const NodeId arg : args) {
      slots.push_back(slotOf_[arg]);
    }
    size_t next = 0;
    rename({calls_.operands.data() + ins.firstOperand, ins.operandCount}, slots, next);
    const ValueId first = static_cast<ValueId>(calls_.values.size());
    ir::Liveness liveness;
    liveness.lastUse.assign(first + ins.resultCount, ir::kNone);
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      calls_.values.push_back(segment_.values[segment_.code[at].firstResult + r]);
      if (!used[r]) {
        liveness.lastUse[first + r] = at;
      }
    }
    ins.firstResult = first;
    runtime::NativeCall call;
    call.whole = whole;
    call.grad = modes_.of[at];
    call.call = torchapi::AtenCall::make(calls_, at, liveness, reason);
    if (call.call == nullptr) {
      return false;
    }
    std::vector<uint32_t> makes;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ir::Type& type = segment_.values[segment_.code[at].firstResult + r];
      if (!used[r]) {
        continue;
      }
      makes.push_back(first + r);
      const ir::TensorMeta& meta = segment_.metas[type.meta];
      if (passes::elemOf(meta.dtype) != passes::Elem::kOther && meta.device == "cpu") {
        const auto dtype = static_cast<int8_t>(ir::dtypeNumber(meta.dtype).value());
        call.results.push_back({first + r, {dtype, meta.sizes, meta.strides}});
      }
    }
    plan_->calls.push_back(std::move(call));
    addStep(NativeStepKind::kCall, plan_->calls.size() - 1, std::move(slots), std::move(makes));
    return true;
  }

  bool addCall(NodeId id, std::string& reason) {
    const Node& node = graph_.nodes[id];
    const uint32_t at = node.instruction;
    std::vector<bool> used(segment_.code[at].resultCount, false);
    bool whole = false;
    std::vector<std::pair<NodeId, uint32_t>> results;
    for (NodeId r = id + 1; r < graph_.nodes.size(); ++r) {
      const Node& result = graph_.nodes[r];
      if (result.kind == NodeKind::kResult && result.args[0] == id) {
        used[result.result] = true;
        whole = whole || (escapes_[r] && !result.fresh);
        results.emplace_back(r, result.result);
      }
    }
    const auto first = static_cast<uint32_t>(calls_.values.size());
    for (const auto& [node, result] : results) {
      slotOf_[node] = first + result;
    }
    return makeCall(at, node.args, used, whole, reason);
  }

  bool addView(NodeId id, std::string& reason) {
    const Node& node = graph_.nodes[id];
    if (madeViews_.contains(node.instruction)) {
      return true;
    }
    if (!escapes_[id] || node.instruction == ir::kNone) {
      plan_->views.push_back({slotOf_[node.args[0]], slotOf_[id], layoutOf(node), node.offset});
      addStep(NativeStepKind::kView, plan_->views.size() - 1, {slotOf_[node.args[0]]}, {slotOf_[id]});
      return true;
    }
    // The outside sees whose view it is: the operator makes it, with all of its results at once.
    madeViews_.insert(node.instruction);
    std::vector<bool> used(segment_.code[node.instruction].resultCount, false);
    const auto first = static_cast<uint32_t>(calls_.values.size());
    for (NodeId other = 0; other < graph_.nodes.size(); ++other) {
      const Node& view = graph_.nodes[other];
      if (view.kind == NodeKind::kView && view.instruction == node.instruction) {
        used[view.result] = true;
        slotOf_[other] = first + view.result;
      }
    }
    return makeCall(node.instruction, node.args, used, true, reason);
  }

  // A slot is emptied behind the step that uses it last; inputs are borrowed, outputs handed over at the end.
  void findDrops() {
    std::vector<bool> stays(calls_.values.size(), false);
    std::fill(stays.begin(), stays.begin() + static_cast<std::ptrdiff_t>(graph_.inputs.size()), true);
    for (const uint32_t slot : plan_->outputs) {
      if (slot != ir::kNone) {
        stays[slot] = true;
      }
    }
    std::vector<std::vector<uint32_t>> dying(plan_->steps.size());
    for (size_t at = plan_->steps.size(); at-- > 0;) {
      for (const uint32_t slot : usedBy_[at]) {
        if (!stays[slot]) {
          stays[slot] = true;
          dying[at].push_back(slot);
        }
      }
    }
    for (size_t at = 0; at < dying.size(); ++at) {
      plan_->steps[at].firstDrop = static_cast<uint32_t>(plan_->drops.size());
      plan_->steps[at].dropCount = static_cast<uint32_t>(dying[at].size());
      plan_->drops.insert(plan_->drops.end(), dying[at].begin(), dying[at].end());
    }
  }

  const GradModes& modes_;
  ir::Trace calls_;  // the segment, its operands and results being slots
  const ir::Trace& segment_;
  const passes::TensorGraph& graph_;
  const passes::NativeProgram& program_;
  const std::vector<bool> escapes_;
  std::unique_ptr<NativePlan> plan_;
  std::vector<uint32_t> slotOf_;               // by node
  std::vector<std::vector<uint32_t>> usedBy_;  // by step: slots
  std::unordered_set<uint32_t> madeViews_;     // instructions
};

}  // namespace

std::unique_ptr<NativePlan> buildNativePlan(const ir::Trace& segment,
                                            const std::vector<torchapi::TensorInfo>& inputs, bool strict,
                                            NativeSummary& summary, std::string& reason) {
  const GradModes modes = gradModesOf(segment);
  if (!modes.known) {
    reason = "it sets the grad mode to something that is not static";
    return nullptr;
  }
  std::optional<passes::TensorGraph> graph =
      passes::buildGraph(segment, {.traits = operatorTraits, .strict = strict}, reason);
  if (!graph) {
    return nullptr;
  }
  passes::dropCopies(*graph);
  passes::mergeEqualNodes(*graph);
  passes::dropUnusedNodes(*graph);
  const passes::NativeProgram program = passes::fuse(*graph);
  summary.instructions = graph->instructions;
  summary.kernels = program.kernels.size();
  summary.calls = program.steps.size() - program.kernels.size();
  if (program.kernels.empty()) {
    reason = "there is nothing in it to generate code for";
    return nullptr;
  }
  std::unique_ptr<NativePlan> plan = PlanBuilder(segment, *graph, program, modes).run(strict, reason);
  if (plan != nullptr) {
    plan->inputs = inputs;
    plan->inputsRequireGrad = std::any_of(inputs.begin(), inputs.end(),
                                          [](const torchapi::TensorInfo& i) { return i.requiresGrad; });
    plan->gradOutside = modes.outside;
    plan->gradOn = modes.on;
    plan->gradModeAfter = modes.after;
  }
  return plan;
}

}  // namespace kintsugi::driver
