#include "driver/plan_of_graph.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/kernel_cache.h"
#include "driver/native_checks.h"
#include "driver/native_convolutions.h"
#include "driver/native_overwrites.h"
#include "driver/native_places.h"
#include "driver/native_reads.h"
#include "driver/native_row_updates.h"
#include "driver/varying_numbers.h"
#include "ir/dtype.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "ops/pseudo_operators.h"
#include "passes/build_graph.h"
#include "passes/fold_convolutions.h"
#include "passes/graph_text.h"
#include "passes/move_reshapes.h"
#include "passes/pass_log.h"
#include "passes/plan_text.h"
#include "passes/products.h"
#include "passes/segments.h"
#include "passes/simplify_graph.h"
#include "support/check.h"
#include "support/fork_gate.h"
#include "support/target.h"

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
using runtime::NativeLayout;
using runtime::NativePatch;
using runtime::NativePlan;
using runtime::NativeStepKind;

class PlanBuilder {
 public:
  PlanBuilder(const NativeSegmentInfo& info, const passes::TensorGraph& graph,
              const passes::NativeProgram& program, const GradModes& modes, unsigned tiles)
      : info_(info),
        tiles_(tiles),
        modes_(modes),
        calls_(info.segment),
        segment_(info.segment),
        graph_(graph),
        program_(program),
        escapes_(passes::escapingNodes(graph)),
        plan_(std::make_unique<NativePlan>()),
        numbers_(passes::sizeTable(), *plan_) {}

  std::unique_ptr<NativePlan> run(std::string& reason) {
    assignSlots();
    for (const NodeId id : graph_.inputs) {
      if (id != ir::kNone && graph_.nodes[id].open) {
        numbers_.addTensor(0, graph_.nodes[id], slotOf_[id], dtypeOf(graph_.nodes[id]));
      }
    }
    for (const passes::NativeStep& step : program_.steps) {
      if (&step - program_.steps.data() >= static_cast<std::ptrdiff_t>(program_.undoable) &&
          firstLast_ == ir::kNone) {
        firstLast_ = static_cast<uint32_t>(plan_->kernels.size());
      }
      const bool ok = step.kind == passes::StepKind::kKernel
                          ? addKernel(program_.kernels[step.kernel], reason)
                      : step.kind == passes::StepKind::kCall ? addCall(step.node, reason)
                                                             : addView(step.node, reason);
      if (!ok) {
        return nullptr;
      }
    }
    for (const auto& [input, times] : graph_.written) {
      plan_->written.push_back({input, times});
    }
    plan_->limits = limitsOf(graph_, slotOf_);
    for (const NodeId id : graph_.outputs) {
      plan_->outputs.push_back(id == ir::kNone ? ir::kNone : slotOf_[id]);
    }
    putSteadyFirst();
    findDrops();
    keepPlaces(*plan_, usedBy_, aliases_, info_.keepMemory);
    overwrite(*plan_, overwrites_);
    numbers_.addChecks();
    if (numbers_.hasUnbound()) {
      reason = "a size is needed that no tensor of the graph tells";
      return nullptr;
    }
    plan_->slotCount = calls_.values.size();
    checkSlots(*plan_, graph_.inputs.size(), calls_.code.size());
    const PlanDescription described{*plan_, graph_.inputs.size(), flows_, usedBy_, aliases_};
    passes::PassLog(segment_, [&] { return passes::print(flowOf(described)); }).after("make-plan");
    checkPlan(described, [this] { return passes::print(graph_, segment_); });
    plan_->trace = std::move(calls_);
    return std::move(plan_);
  }

 private:
  // A slot for each node, the inputs first. What calls return needs neighbouring slots, which follow.
  void assignSlots() {
    calls_.values.assign(graph_.nodes.size() + graph_.inputs.size(), {ir::TypeKind::kTensor, ir::kNone});
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      slotOf_.push_back(static_cast<uint32_t>(graph_.inputs.size() + id));
    }
    for (size_t k = 0; k < graph_.inputs.size(); ++k) {
      slotOf_[graph_.inputs[k]] = static_cast<uint32_t>(k);
    }
    findReshapes();
  }

  // Finds results that are only used through a reshape: they are allocated in that shape from the start.
  void findReshapes() {
    reshapedAs_.assign(graph_.nodes.size(), ir::kNone);
    std::vector<bool> direct(graph_.nodes.size(), false);  // its own form is seen
    for (const NodeId id : graph_.outputs) {
      if (id != ir::kNone) {
        direct[id] = true;
      }
    }
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      const bool looks = passes::isCore(node) || node.kind == NodeKind::kJoin ||
                         (node.kind == NodeKind::kCall && node.product);
      const bool alias = node.kind == NodeKind::kView && (!escapes_[id] || node.instruction == ir::kNone);
      for (size_t k = 0; k < node.args.size(); ++k) {
        direct[node.args[k]] = direct[node.args[k]] || !(looks || (alias && k == 0));
      }
    }
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& view = graph_.nodes[id];
      if (view.kind != NodeKind::kView || !direct[id] || (escapes_[id] && view.instruction != ir::kNone)) {
        continue;
      }
      const NodeId base = view.args[0];
      const Node& made = graph_.nodes[base];
      if (passes::isCore(made) && !direct[base] && reshapedAs_[base] == ir::kNone && view.offset == 0 &&
          view.elem == made.elem && passes::elementCount(view.sizes) == passes::elementCount(made.sizes) &&
          view.strides == passes::contiguousStrides(view.sizes) &&
          made.strides == passes::contiguousStrides(made.sizes)) {
        reshapedAs_[base] = id;
        slotOf_[id] = slotOf_[base];
      }
    }
  }

  ir::DType dtypeOf(const Node& node) const {
    const bool told = node.value != ir::kNone && segment_.values[node.value].meta != ir::kNone;
    return told ? segment_.metas[segment_.values[node.value].meta].dtype
                : ir::dtypeOf(passes::elemName(node.elem)).value();
  }

  std::vector<NativePatch> patches(const std::vector<passes::Size>& sizes) {
    std::vector<NativePatch> out;
    for (uint32_t d = 0; d < sizes.size(); ++d) {
      if (const uint32_t from = numbers_.indexOf(sizes[d]); from != ir::kNone) {
        out.push_back({d, from});
      }
    }
    return out;
  }

  NativeLayout layoutOf(const Node& node) {
    return {{{passes::hintsOf(node.sizes), passes::hintsOf(node.strides)}, dtypeOf(node)},
            {patches(node.sizes), patches(node.strides)}};
  }

  // `steady`: its results are the same in every run if its operands are.
  void addStep(NativeStepKind kind, size_t index, std::vector<uint32_t> uses, std::vector<uint32_t> makes,
               bool steady = false) {
    plan_->steps.push_back({kind, static_cast<uint32_t>(index)});
    steadySteps_.push_back(steady);
    std::vector<uint32_t> looks = uses;
    looks.insert(looks.end(), makes.begin(), makes.end());
    usedBy_.push_back(std::move(looks));
    flows_.push_back({std::move(uses), std::move(makes)});
  }

  // A slot is constant across runs if every step that writes its memory is.
  void findSteady() {
    steadySlots_.assign(calls_.values.size(), false);
    for (const StepFlow& flow : flows_) {
      for (const uint32_t slot : flow.makes) {
        steadySlots_[slot] = true;
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t at = 0; at < flows_.size(); ++at) {
        const auto isSteady = [&](uint32_t slot) { return steadySlots_[slot]; };
        const bool stays = steadySteps_[at] &&
                           std::all_of(flows_[at].uses.begin(), flows_[at].uses.end(), isSteady) &&
                           std::all_of(flows_[at].makes.begin(), flows_[at].makes.end(), isSteady);
        changed = changed || steadySteps_[at] != stays;
        steadySteps_[at] = stays;
        for (const uint32_t slot : flows_[at].makes) {
          changed = changed || steadySlots_[slot] != (steadySlots_[slot] && stays);
          steadySlots_[slot] = steadySlots_[slot] && stays;
        }
      }
    }
  }

  // May the tensor be kept between runs? It must not leave the segment, and not be large.
  bool mayStay(NodeId id) const {
    // A larger one costs memory for as long as the plan lives; a smaller one is allocated in each run, which
    // takes longest, beside the kernel that fills it, for small tensors.
    constexpr int64_t kMostElements = int64_t{1} << 20;
    const Node& node = graph_.nodes[id];
    return !escapes_[id] && passes::allFixed(node.sizes) && passes::allFixed(node.strides) &&
           passes::elementCount(node.sizes).hint <= kMostElements;
  }

  // Moves steps whose results are the same in every run to the front; only the first run makes them.
  // Examples: masks, positions, tables of angles.
  void putSteadyFirst() {
    findSteady();
    std::vector<runtime::NativePlanStep> steps;
    std::vector<std::vector<uint32_t>> usedBy;
    std::vector<StepFlow> flows;
    for (const bool steady : {true, false}) {
      for (size_t at = 0; at < steadySteps_.size(); ++at) {
        if (steadySteps_[at] == steady) {
          steps.push_back(plan_->steps[at]);
          usedBy.push_back(std::move(usedBy_[at]));
          flows.push_back(std::move(flows_[at]));
        }
      }
      plan_->steadySteps = steady ? steps.size() : plan_->steadySteps;
    }
    plan_->steps = std::move(steps);
    usedBy_ = std::move(usedBy);
    flows_ = std::move(flows);
    for (uint32_t slot = 0; slot < steadySlots_.size(); ++slot) {
      if (steadySlots_[slot]) {
        plan_->steadySlots.push_back(slot);
      }
    }
  }

  bool addKernel(const passes::Kernel& kernel, std::string& reason) {
    runtime::NativeKernel out;
    compileGate().safePoint();
    const auto code = codegen::compileKernel(kernel, info_.contract && !info_.strict, reason, tiles_);
    if (code == nullptr) {
      return false;
    }
    out.function = code->function;
    out.code = code;
    std::vector<uint32_t> uses, makes;
    bool steady = true;
    for (const passes::KernelAccess& access : kernel.accesses) {
      const uint32_t slot = slotOf_[access.node];
      if (graph_.nodes[access.node].largest != 0) {  // a number that each run computes
        out.values.push_back(static_cast<uint32_t>(out.memory.size()));
      }
      out.memory.push_back({slot, access.offset * passes::elemSize(access.elem)});
      const bool toInput = access.store && graph_.nodes[access.node].kind == NodeKind::kInput;
      if (access.store) {
        steady = steady && !toInput && mayStay(access.node);
      }
      // Nothing is allocated any more once a visible store has been made.
      const bool last = firstLast_ != ir::kNone && firstLast_ < plan_->kernels.size();
      if (access.store && !toInput) {
        addMade(access.node, last ? plan_->kernels[firstLast_].made : out.made);
      }
      (access.store ? makes : uses).push_back(slot);
    }
    std::vector<passes::Size> numbers = {kernel.sizes.back()};
    numbers.insert(numbers.end(), kernel.sizes.begin(), kernel.sizes.end() - 1);
    for (const passes::KernelAccess& access : kernel.accesses) {
      numbers.insert(numbers.end(), access.strides.begin(), access.strides.end());
    }
    for (const passes::KernelOp& op : kernel.ops) {
      for (const passes::PartBound& bound : op.bounds) {
        numbers.insert(numbers.end(), {passes::Size(bound.low), passes::Size(bound.high)});
      }
      if (op.kind == passes::KernelOpKind::kPoint && op.op == passes::Core::kTake) {
        numbers.insert(numbers.end(), {passes::Size(op.indexed.step), passes::Size(op.indexed.count)});
      }
    }
    if (kernel.product) {
      const passes::KernelProduct& p = *kernel.product;
      numbers.insert(numbers.end(), {p.k, p.leftStride, p.rightStride, p.chunk, p.depth});
    }
    if (kernel.attention) {
      numbers.insert(numbers.end(), {kernel.attention->keys, passes::Size(kernel.attention->group)});
    }
    out.numbers = passes::hintsOf(numbers);
    KINTSUGI_CHECK(out.numbers.size() == kernel.numberCount(), "a plan gives ", out.numbers.size(),
                   " numbers to a kernel that takes ", kernel.numberCount());
    out.patches = patches(numbers);
    out.checks = kernel.checks();
    findOverwrites(kernel);
    estimateCost(kernel, out);
    plan_->kernels.push_back(std::move(out));
    addStep(NativeStepKind::kKernel, plan_->kernels.size() - 1, std::move(uses), std::move(makes),
            steady && plan_->kernels.back().patches.empty());
    return true;
  }

  // Finds operands that die in the kernel, so that it may write its results over them.
  void findOverwrites(const passes::Kernel& kernel) {
    for (const passes::KernelStore& store : kernel.stores) {
      const NodeId made = kernel.accesses[store.access].node;
      const Node& to = graph_.nodes[reshapedAs_[made] != ir::kNone ? reshapedAs_[made] : made];
      for (const uint32_t access : overwritable(kernel, store)) {
        const NodeId id = kernel.accesses[access].node;
        const Node& from = graph_.nodes[id];
        const bool own = passes::isCore(from) || (from.kind == NodeKind::kResult && from.fresh);
        if (own && reshapedAs_[id] == ir::kNone && dtypeOf(from) == dtypeOf(to) && from.sizes == to.sizes &&
            from.strides == to.strides) {
          overwrites_.push_back({static_cast<uint32_t>(plan_->kernels.size()), slotOf_[made], slotOf_[id]});
        }
      }
    }
  }

  // The first step that computes a part of a concatenation allocates its tensor.
  void addMade(NodeId id, std::vector<runtime::NativeMade>& made) {
    if (made_.insert(id).second) {
      const NodeId form = reshapedAs_[id] != ir::kNone ? reshapedAs_[id] : id;
      made.push_back({slotOf_[id], layoutOf(graph_.nodes[form])});
    }
  }

  static void estimateCost(const passes::Kernel& kernel, runtime::NativeKernel& out) {
    const Target::Costs& costs = target().costs;
    out.cost = 1;
    for (const passes::KernelOp& op : kernel.ops) {
      const bool costly = op.kind == passes::KernelOpKind::kPoint &&
                          passes::coreInfo(op.op).cost == passes::CoreCost::kCostly;
      out.cost += costly ? costs.costlyOperation : 1;
    }
    out.outerRank = kernel.outerRank();
    out.flat = out.outerRank == 0 && !kernel.hasReductions && !kernel.product;
    if (kernel.product) {
      // A product and a sum for each element of k.
      out.chunk = kernel.product->chunk;
      out.strip = passes::KernelProduct::kStrip;
      out.batched = kernel.product->batched;
      out.cost = out.chunk * out.strip * (out.cost + kernel.product->k / costs.fusedMultiplies);
    }
    if (kernel.attention) {
      // A piece is queries of one head, each with all keys.
      const passes::KernelAttention& a = *kernel.attention;
      const int64_t queries = std::min(kernel.sizes[2].hint, passes::KernelAttention::kChunk);
      out.chunk = passes::KernelAttention::kChunk;
      out.strip = a.valueSize;
      out.batched = true;
      out.cost = queries * a.keys.hint * (a.few ? a.group : 1) *
                 ((a.headSize + a.valueSize) / costs.fusedMultiplies + costs.scoreOperations + out.cost);
    }
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
                bool steady, std::string& reason) {
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
    if (ins.op != Op::kAten) {
      addStep(NativeStepKind::kScalar, at, std::move(slots), {first});
      return true;
    }
    const bool reads = passes::readsNumber(segment_, segment_.code[at]) && !info_.callsOnly;
    if (const auto type = reads ? readType(graph_.nodes[args[0]].elem) : std::nullopt) {
      plan_->reads.push_back({memoryFor(args[0]), *type, first});
      addStep(NativeStepKind::kRead, plan_->reads.size() - 1, std::move(slots), {first});
      return true;
    }
    runtime::NativeCall call;
    call.whole = whole || info_.callsOnly;
    call.grad = modes_.of[at];
    call.restride = info_.restride;
    const std::string& name = calls_.opNames[ins.opName];
    const bool ok = name == ops::kFoldedConvolution ? makeConvolution(calls_, at, *plan_->device, call)
                    : ops::isTaped(name)            ? makeTaped(call, at, slots, used, liveness, reason)
                                                    : makeAten(call, at, args, liveness, reason);
    if (!ok) {
      return false;
    }
    std::vector<uint32_t> makes;
    if (call.rows && !used.front()) {
      call.rows.reset();
    } else if (call.rows) {
      call.rows->result = first;
    }
    for (uint32_t r = 0; r < segment_.code[at].resultCount; ++r) {
      const ir::Type& type = segment_.values[segment_.code[at].firstResult + r];
      if (!used[r]) continue;
      makes.push_back(first + r);
      if (r >= ins.resultCount || !segment_.hasFixedSizes(type) || info_.callsOnly) {
        continue;  // a leaf of a tape, or unknown, or bound by who called, or of no interest
      }
      const ir::TensorDesc& meta = segment_.metas[type.meta];
      if (passes::elemOf(meta.dtype) != passes::Elem::kOther && passes::compilesFor(meta.device)) {
        call.results.push_back({first + r, meta});
      }
    }
    plan_->calls.push_back(std::move(call));
    for (const uint32_t from : slots) {
      for (const uint32_t to : makes) {
        aliases_.emplace_back(from, to);  // perhaps
      }
    }
    // An operator that only takes a tensor's type (`zeros_like`) needs the tensor, but not its contents.
    const bool bySample = steady && passes::readsMetadataOnly(segment_, segment_.code[at]) &&
                          args.size() == 1 && slots[0] < graph_.inputs.size();
    addStep(NativeStepKind::kCall, plan_->calls.size() - 1, bySample ? std::vector<uint32_t>() : slots,
            std::move(makes), steady);
    if (bySample) {
      usedBy_.back().insert(usedBy_.back().end(), slots.begin(), slots.end());
    }
    return true;
  }

  bool makeAten(runtime::NativeCall& call, uint32_t at, const std::vector<NodeId>& args,
                const ir::Liveness& liveness, std::string& reason) {
    call.call = torchapi::AtenCall::make(calls_, at, liveness, reason);
    const std::string_view name = calls_.opNames[calls_.code[at].opName];
    if (call.call != nullptr && !call.whole && writesToCopy(name) && mayWrite(at, args)) {
      // aten.scatter.src: aten.scatter_.src
      Instruction& ins = calls_.code[at];
      const uint32_t copying = ins.opName;
      const size_t dot = name.rfind('.');
      std::string unused;
      ins.opName =
          calls_.internOpName(std::string(name.substr(0, dot)) + "_" + std::string(name.substr(dot)));
      call.inPlace = torchapi::AtenCall::make(calls_, at, liveness, unused);
      call.target = slotOf_[args.front()];
      ins.opName = copying;
      std::vector<uint32_t> slots;
      std::transform(args.begin(), args.end(), std::back_inserter(slots),
                     [&](NodeId id) { return slotOf_[id]; });
      call.rows =
          info_.strict ? std::nullopt : rowUpdateOf(name, segment_.operandsOf(segment_.code[at]), slots);
    }
    return call.call != nullptr;
  }

  // The first operand, if it has the result's layout and is no other operand as well.
  bool mayWrite(uint32_t at, const std::vector<NodeId>& args) const {
    const Instruction& ins = segment_.code[at];
    const ir::Type& type = segment_.values[ins.firstResult];
    if (args.empty() || ins.resultCount != 1 || !segment_.hasFixedSizes(type) ||
        std::count(args.begin(), args.end(), args.front()) != 1) {
      return false;
    }
    const ir::TensorDesc& meta = segment_.metas[type.meta];
    const Node& target = graph_.nodes[args.front()];
    const std::vector<passes::Size> sizes = passes::fixedSizes(meta.sizes);
    const std::vector<passes::Size> strides =
        meta.strides.empty() ? passes::contiguousStrides(sizes) : passes::fixedSizes(meta.strides);
    return target.elem == passes::elemOf(meta.dtype) && target.elem != passes::Elem::kOther &&
           target.sizes == sizes && target.strides == strides && passes::isDense(sizes, strides);
  }

  // `taped.aten.conv2d.default`, with a leaf for each value that autograd follows after its results; or
  // `taped.gradients` (passes/gradient_graph.h).
  bool makeTaped(runtime::NativeCall& call, uint32_t at, const std::vector<uint32_t>& slots,
                 const std::vector<bool>& used, ir::Liveness& liveness, std::string& reason) {
    Instruction& ins = calls_.code[at];
    const std::string name = calls_.opNames[ins.opName];
    if (name == ops::kTapedGradients) {
      auto tape = std::make_unique<runtime::NativeCall::Tape>();
      const auto lists = segment_.operandsOf(segment_.code[at]);
      auto next = slots.begin();
      size_t operand = 0;
      for (auto* list : {&tape->results, &tape->leaves, &tape->gradients}) {
        const auto count = static_cast<std::ptrdiff_t>(lists[operand++].count);
        list->assign(next, next + count);
        next += count;
      }
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        tape->made.push_back(used[r] ? ins.firstResult + r : ir::kNone);
      }
      for (uint32_t before = 0; before < at; ++before) {
        const Instruction& other = segment_.code[before];
        tape->number += other.op == Op::kAten && segment_.opNames[other.opName] == name ? 1 : 0;
      }
      call.tape = std::move(tape);
      return true;
    }
    std::vector<ValueId> values, seen;
    ir::collectValues(segment_, segment_.operandsOf(segment_.code[at]), values);
    std::vector<uint32_t> follows, leaves;
    for (size_t k = 0; k < values.size(); ++k) {
      const ir::Type& type = segment_.values[values[k]];
      if (type.meta != ir::kNone && segment_.metas[type.meta].requiresGrad &&
          std::find(seen.begin(), seen.end(), values[k]) == seen.end()) {
        seen.push_back(values[k]);
        follows.push_back(slots[k]);
      }
    }
    const auto results = ins.resultCount - static_cast<uint32_t>(follows.size());
    for (uint32_t k = results; k < ins.resultCount; ++k) {
      leaves.push_back(ins.firstResult + k);
    }
    ins.resultCount = results;
    ins.opName = calls_.internOpName(ops::untapedOf(name));
    auto made = torchapi::AtenCall::make(calls_, at, liveness, reason);
    if (made == nullptr) {
      return false;
    }
    call.taped =
        std::make_unique<torchapi::TapedCall>(std::move(made), std::move(follows), std::move(leaves));
    return true;
  }

  bool addCall(NodeId id, std::string& reason) {
    const Node& node = graph_.nodes[id];
    const uint32_t at = node.instruction;
    if (node.product) {
      return addProduct(id);
    }
    if (segment_.code[at].op == Op::kSize && !node.sizes.empty()) {
      addNumber(id);
      return true;
    }
    std::vector<bool> used(segment_.code[at].resultCount, false);
    bool whole = false, steady = true;
    std::vector<std::pair<NodeId, uint32_t>> results;
    for (NodeId r = id + 1; r < graph_.nodes.size(); ++r) {
      const Node& result = graph_.nodes[r];
      if (result.kind == NodeKind::kResult && result.args[0] == id) {
        used[result.result] = true;
        whole = whole || (escapes_[r] && !result.fresh);
        steady = steady && mayStay(r) && !result.open && result.elem != passes::Elem::kOther;
        results.emplace_back(r, result.result);
      }
    }
    const auto first = static_cast<uint32_t>(calls_.values.size());
    for (const auto& [node, result] : results) {
      slotOf_[node] = first + result;
    }
    if (!makeCall(at, node.args, used, whole, steady && !whole, reason)) {
      return false;
    }
    const bool checked = std::any_of(results.begin(), results.end(), [this](const auto& result) {
      return graph_.nodes[result.first].checked;
    });
    if (checked) {
      plan_->calls.back().restride = false;
    }
    for (const auto& [result, number] : results) {
      if (graph_.nodes[result].open) {
        bindResult(result);
      }
    }
    return true;
  }

  // Its only result is the next node.
  bool addProduct(NodeId id) {
    const Node& node = graph_.nodes[id];
    const NodeId result = id + 1;
    const bool byRows = ops::infoOf(segment_.operatorOf(segment_.code[node.instruction])).product.byRows;
    const auto form =
        passes::productForm(graph_.nodes[node.args[0]], graph_.nodes[node.args[1]], byRows).value();
    runtime::NativeProduct product;
    const passes::MemoryPlace place = passes::tensorOf(graph_, result);
    product.left = memoryFor(node.args[0]);
    product.right = memoryFor(node.args[1]);
    product.result = memoryFor(result);
    addMade(place.base, product.made);
    const Node& made = graph_.nodes[result];
    const passes::Size rows = form.m, columns = form.n;
    const auto strides = passes::stridesInShape(made.sizes, made.strides, {rows, columns});
    product.shape = {.m = form.m.hint,
                     .n = form.n,
                     .k = form.k,
                     .leftStride = form.leftStride,
                     .rightStride = form.rightStride,
                     .resultStride = rows == 1 || columns == 1 ? form.n
                                     : strides                 ? (*strides)[0].hint
                                                               : form.n,
                     .rightByColumns = form.rightByColumns};
    product.rowsFrom = numbers_.indexOf(form.m);
    const bool steady = mayStay(place.base) && product.rowsFrom == ir::kNone;
    addStep(NativeStepKind::kProduct, plan_->products.size(), {product.left.slot, product.right.slot},
            {product.result.slot}, steady);
    plan_->products.push_back(std::move(product));
    return true;
  }

  runtime::NativeMemory memoryFor(NodeId id) const {
    const passes::MemoryPlace place = passes::tensorOf(graph_, id);
    return {slotOf_[place.base], place.offset * passes::elemSize(graph_.nodes[id].elem)};
  }

  // A result of the last call binds symbols of sizes.
  void bindResult(NodeId id) {
    runtime::NativeCall& call = plan_->calls.back();
    if (call.binding == ir::kNone) {
      call.binding = static_cast<uint32_t>(plan_->bindings.size());
      plan_->bindings.emplace_back();
    }
    numbers_.addTensor(call.binding, graph_.nodes[id], slotOf_[id], dtypeOf(graph_.nodes[id]));
  }

  void addNumber(NodeId id) {
    for (NodeId r = id + 1; r < graph_.nodes.size(); ++r) {
      if (graph_.nodes[r].kind == NodeKind::kResult && graph_.nodes[r].args[0] == id) {
        const passes::Size size = passes::folded(graph_.nodes[id].sizes[0]);
        plan_->values.push_back({slotOf_[r], size.hint, numbers_.indexOf(size)});
        addStep(NativeStepKind::kNumber, plan_->values.size() - 1, {}, {slotOf_[r]});
        return;
      }
    }
  }

  bool addView(NodeId id, std::string& reason) {
    const Node& node = graph_.nodes[id];
    if (madeViews_.contains(node.instruction) || reshapedAs_[node.args[0]] == id) {
      return true;
    }
    if (!escapes_[id] || node.instruction == ir::kNone) {
      plan_->views.push_back({slotOf_[node.args[0]], slotOf_[id], layoutOf(node), node.offset});
      addStep(NativeStepKind::kView, plan_->views.size() - 1, {slotOf_[node.args[0]]}, {slotOf_[id]},
              mayStay(id));
      aliases_.emplace_back(slotOf_[node.args[0]], slotOf_[id]);
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
    return makeCall(node.instruction, node.args, used, true, false, reason);
  }

  // A slot is emptied after the step that uses it last; inputs are borrowed, outputs handed over at the end.
  void findDrops() {
    std::vector<bool> stays(calls_.values.size(), false);
    std::fill(stays.begin(), stays.begin() + static_cast<std::ptrdiff_t>(graph_.inputs.size()), true);
    for (const uint32_t slot : plan_->outputs) {
      if (slot != ir::kNone) {
        stays[slot] = true;
      }
    }
    for (const uint32_t slot : plan_->steadySlots) {
      stays[slot] = true;
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
      if (plan_->steps[at].kind == NativeStepKind::kCall) {
        runtime::NativeCall& call = plan_->calls[plan_->steps[at].index];
        call.lastLook = std::find(dying[at].begin(), dying[at].end(), call.target) != dying[at].end();
      }
      plan_->drops.insert(plan_->drops.end(), dying[at].begin(), dying[at].end());
    }
  }

  const NativeSegmentInfo& info_;
  const unsigned tiles_;
  const GradModes& modes_;
  ir::Trace calls_;  // the segment, its operands and results being slots
  const ir::Trace& segment_;
  const passes::TensorGraph& graph_;
  const passes::NativeProgram& program_;
  const std::vector<bool> escapes_;
  std::unique_ptr<NativePlan> plan_;
  VaryingNumbers numbers_;
  std::vector<uint32_t> slotOf_;               // by node
  std::vector<NodeId> reshapedAs_;             // by node: the view whose form its tensor has
  std::vector<std::vector<uint32_t>> usedBy_;  // by step: slots
  std::vector<StepFlow> flows_;                // by step
  std::vector<bool> steadySteps_;              // the same in every run
  std::vector<bool> steadySlots_;
  uint32_t firstLast_ = ir::kNone;   // the first kernel of those that come last, as they write to inputs
  std::unordered_set<NodeId> made_;  // tensors that an earlier step makes
  std::vector<Overwrite> overwrites_;
  std::unordered_set<uint32_t> madeViews_;  // instructions
  std::vector<std::pair<uint32_t, uint32_t>>
      aliases_;  // pairs of slots: the second may be a view of the first
};

}  // namespace

std::unique_ptr<NativePlan> planOfGraph(const NativeSegmentInfo& info, const passes::TensorGraph& graph,
                                        const passes::NativeProgram& program, const GradModes& modes,
                                        unsigned tiles, std::string& reason) {
  std::unique_ptr<NativePlan> plan = PlanBuilder(info, graph, program, modes, tiles).run(reason);
  if (plan != nullptr) {
    plan->inputs = info.inputs;
    plan->inputsRequireGrad = std::any_of(info.inputs.begin(), info.inputs.end(),
                                          [](const NativePlan::Input& i) { return i.info.requiresGrad; });
    plan->gradOutside = modes.outside;
    plan->gradOn = modes.on;
    plan->gradModeAfter = modes.after;
  }
  return plan;
}

}  // namespace kintsugi::driver
