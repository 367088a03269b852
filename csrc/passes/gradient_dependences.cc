#include "passes/gradient_dependences.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "ir/segments.h"
#include "ops/operator.h"
#include "passes/requires_grad.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::KeptForm;
using ir::ValueId;

namespace {

class Dependences {
 public:
  Dependences(const DependenceInput& input, KeptForm& form)
      : in_(input),
        trace_(input.graph.trace),
        form_(form),
        computedFrom_(trace_.values.size(), 0),
        usedFor_(trace_.values.size(), 0) {}

  void run() {
    form_.isByOutput = addIncoming();
    if (form_.isByOutput) {
      followGradients();
    } else {
      // Too many outputs for a mask: every set stands for all of them.
      std::ranges::fill(computedFrom_, KeptForm::kAll);
      std::ranges::fill(usedFor_, KeptForm::kAll);
    }
    addOrder();
    addChecked();
    if (!form_.isByOutput) {
      form_.recompute.assign(in_.graph.inputs.size(), KeptForm::kAll);
      return;
    }
    // A constant gradient (zeros, of a step function) depends on no gradient of an output. Its set is that of
    // the outputs that are computed from the input.
    for (size_t k = 0; k < form_.gets.size(); ++k) {
      const uint64_t outputs = computedFrom_[in_.graph.gradients[form_.gets[k]]];
      form_.feeds.push_back(outputs != 0 ? outputs : outputsOf(k));
    }
    std::vector<uint64_t> all = usedFor_;
    for (const auto& [now, value] : in_.graph.now) all[value] |= all[now];
    spread(all, false);
    for (const ValueId value : in_.graph.inputs) form_.recompute.push_back(all[value]);
    spread(usedFor_, true);  // a value that is computed again needs its operands
    for (size_t k = 0; k < form_.kept.size(); ++k) form_.kept[k].outputs = usedFor_[in_.keptValues[k]];
  }

 private:
  std::vector<ValueId> used(uint32_t at) const {
    std::vector<ValueId> values;
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[at]), values);
    return values;
  }

  bool addIncoming() {
    uint64_t next = 1;
    for (const ValueId incoming : in_.graph.incoming) {
      if (incoming == ir::kNone) continue;
      if (next == 0) return false;
      computedFrom_[incoming] = next;
      next <<= 1;
    }
    return true;
  }

  // Computes for each value of the backward two sets of outputs: those whose gradients it is computed from
  // (computedFrom_), and those for whose gradients it is used (usedFor_).
  void followGradients() {
    for (const uint32_t at : in_.backward) {
      const Instruction& ins = trace_.code[at];
      for (const ValueId value : used(at)) {
        for (uint32_t r = 0; r < ins.resultCount; ++r)
          computedFrom_[ins.firstResult + r] |= computedFrom_[value];
      }
    }
    for (size_t k = in_.backward.size(); k-- > 0;) {
      const Instruction& ins = trace_.code[in_.backward[k]];
      // A result that depends on no gradient counts for the outputs for whose gradients it is used.
      uint64_t outputs = 0;
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        const ValueId result = ins.firstResult + r;
        outputs |= computedFrom_[result] != 0 ? computedFrom_[result] : usedFor_[result];
      }
      for (const ValueId value : used(in_.backward[k])) usedFor_[value] |= outputs;
    }
  }

  void addOrder() {
    const ir::Trace& program = in_.graph.recompute;
    const auto marked = [&](const Instruction& ins) {
      std::vector<ValueId> values;
      ir::collectValues(program, program.operandsOf(ins), values);
      return values;
    };
    const std::vector<ValueId> inputs = marked(program.code.front()), outputs = marked(program.code.back());
    std::vector<uint32_t> madeAt(program.values.size(), 0);
    std::vector<uint64_t> leads(program.values.size(), 0);  // to these outputs
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (in_.graph.incoming[k] != ir::kNone) leads[outputs[k]] |= computedFrom_[in_.graph.incoming[k]];
    }
    std::vector<std::vector<KeptForm::Use>> uses(program.values.size());  // the last one first
    for (auto at = static_cast<uint32_t>(program.code.size() - 1); at-- > 1;) {
      const Instruction& ins = program.code[at];
      const auto operands = program.operandsOf(ins);
      const bool writes = ins.op == ir::Op::kAten && ops::isInPlace(program.opNames[ins.opName]);
      if (writes && !operands.empty() && operands[0].isValue() && madeAt[operands[0].id] == 0) {
        madeAt[operands[0].id] = at;
      }
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        uint32_t& made = madeAt[ins.firstResult + r];
        made = std::max(made, at);
      }
      uint64_t reached = 0;
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        const ValueId result = ins.firstResult + r;
        reached |= requiresGrad(program, result) ? leads[result] : 0;
      }
      if (reached == 0) continue;
      for (const ValueId value : marked(ins)) {
        leads[value] |= reached;
        uses[value].push_back({at, reached});
      }
    }
    for (const uint32_t k : form_.gets) form_.usedAt.push_back(firstOf(uses[inputs[k]]));
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (in_.graph.incoming[k] != ir::kNone) form_.madeAt.push_back(madeAt[outputs[k]]);
    }
  }

  // In program order, the uses that lead to an output to which no use before them leads.
  static std::vector<KeptForm::Use> firstOf(const std::vector<KeptForm::Use>& uses) {
    std::vector<KeptForm::Use> first;
    uint64_t known = 0;
    for (const KeptForm::Use& use : uses | std::views::reverse) {
      if ((use.outputs & ~known) == 0) continue;
      first.push_back(use);
      known |= use.outputs;
    }
    return first;
  }

  // The outputs that are computed from an input.
  uint64_t outputsOf(size_t get) const {
    std::vector<bool> made(trace_.values.size(), false);
    made[in_.graph.inputs[form_.gets[get]]] = true;
    for (const uint32_t at : in_.graph.forward) {
      const std::vector<ValueId> values = used(at);
      if (std::ranges::none_of(values, [&](ValueId value) { return made[value]; })) continue;
      const Instruction& ins = trace_.code[at];
      for (uint32_t r = 0; r < ins.resultCount; ++r) made[ins.firstResult + r] = true;
    }
    uint64_t outputs = 0;
    for (size_t k = 0; k < in_.graph.outputs.size(); ++k) {
      const ValueId incoming = in_.graph.incoming[k];
      if (incoming != ir::kNone && made[in_.graph.outputs[k]]) outputs |= computedFrom_[incoming];
    }
    return outputs != 0 ? outputs : KeptForm::kAll;
  }

  // Adds the set of each result of the forward to the sets of its operands, from the last on. `stopAtKept`:
  // saved results add nothing, since the operators that made them do not run again.
  void spread(std::vector<uint64_t>& sets, bool stopAtKept) const {
    for (size_t k = in_.graph.forward.size(); k-- > 0;) {
      const Instruction& ins = trace_.code[in_.graph.forward[k]];
      uint64_t outputs = 0;
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        const ValueId result = ins.firstResult + r;
        outputs |= stopAtKept && in_.isKept[result] ? 0 : sets[result];
      }
      if (outputs == 0) continue;
      for (const ValueId value : used(in_.graph.forward[k])) sets[value] |= outputs;
    }
  }

  // By value of the forward: the inputs (by `gets`) that it is computed from.
  std::vector<std::vector<bool>> findSources() const {
    std::vector<std::vector<bool>> sources(trace_.values.size());
    for (size_t k = 0; k < form_.gets.size(); ++k) {
      std::vector<bool>& set = sources[in_.graph.inputs[form_.gets[k]]];
      set.assign(form_.gets.size(), false);
      set[k] = true;
    }
    for (const uint32_t at : in_.graph.forward) {
      const Instruction& ins = trace_.code[at];
      std::vector<bool> all;
      for (const ValueId value : used(at)) {
        if (all.empty()) {
          all = sources[value];
          continue;
        }
        for (size_t k = 0; k < sources[value].size(); ++k) all[k] = all[k] || sources[value][k];
      }
      for (uint32_t r = 0; r < ins.resultCount; ++r) sources[ins.firstResult + r] = all;
    }
    return sources;
  }

  // A node of eager mode's as sets: the outputs from which it is reached, and the inputs that it leads to.
  KeptForm::Node nodeOf(const SavedByEager& node) const {
    uint64_t outputs = 0;
    for (const ValueId gradient : node.arriving) outputs |= computedFrom_[gradient];
    std::vector<bool> leads(form_.gets.size(), false);
    for (const ValueId value : node.followed) {
      for (size_t k = 0; k < sources_[value].size(); ++k) leads[k] = leads[k] || sources_[value][k];
    }
    return {outputs != 0 ? outputs : KeptForm::kAll, std::move(leads)};
  }

  void addChecked() {
    sources_ = findSources();
    for (const SavedByEager& saved : in_.graph.saved) {
      KeptForm::Node node = nodeOf(saved);
      KeptForm::Checked checked{*placeIn(in_.graph, saved.base), node.outputs, std::move(node.leads)};
      const bool known = std::ranges::any_of(form_.checked, [&](const KeptForm::Checked& other) {
        return other.place == checked.place && other.outputs == checked.outputs &&
               other.leads == checked.leads;
      });
      if (!known) form_.checked.push_back(std::move(checked));
    }
    for (const uint32_t at : in_.backward) {
      const auto tape = std::ranges::find(in_.graph.tapes, at, &std::pair<uint32_t, SavedByEager>::first);
      if (tape == in_.graph.tapes.end()) continue;
      form_.tapes.push_back(nodeOf(tape->second));
    }
    for (const SavedByEager& holder : in_.graph.holders) {
      KeptForm::Node node = nodeOf(holder);
      const bool known = std::ranges::any_of(form_.holders, [&](const KeptForm::Node& other) {
        return other.outputs == node.outputs && other.leads == node.leads;
      });
      if (!known) form_.holders.push_back(std::move(node));
    }
  }

  const DependenceInput& in_;
  const ir::Trace& trace_;
  KeptForm& form_;
  std::vector<uint64_t> computedFrom_, usedFor_;
  std::vector<std::vector<bool>> sources_;  // by value
};

}  // namespace

std::optional<ir::SegmentPlace> placeIn(const GradientGraph& graph, ValueId value) {
  using From = ir::SegmentPlace::From;
  const auto input = std::ranges::find(graph.inputs, value);
  if (input != graph.inputs.end()) {
    return ir::SegmentPlace{From::kInput, static_cast<uint32_t>(input - graph.inputs.begin())};
  }
  const auto output = std::ranges::find(graph.outputs, value);
  if (output == graph.outputs.end()) return std::nullopt;
  return ir::SegmentPlace{From::kOutput, static_cast<uint32_t>(output - graph.outputs.begin())};
}

void findDependences(const DependenceInput& input, KeptForm& form) { Dependences(input, form).run(); }

}  // namespace kintsugi::passes
