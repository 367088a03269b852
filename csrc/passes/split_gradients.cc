#include "passes/split_gradients.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "ir/printer.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "ops/pseudo_operators.h"
#include "passes/build_graph.h"
#include "passes/gradient_dependences.h"
#include "passes/kept_by_eager.h"
#include "passes/operator_rules.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Operand;
using ir::ValueId;
using ops::Operator;
using ops::Trait;

namespace {

constexpr int64_t kNever = int64_t{1} << 50;

// Maximum flow (Dinic) over numbered nodes.
class MaxFlow {
 public:
  explicit MaxFlow(size_t nodes) : first_(nodes, -1) {}

  void edge(size_t from, size_t to, int64_t capacity) {
    add(from, to, capacity);
    add(to, from, 0);
  }

  int64_t run(size_t source, size_t sink) {
    int64_t flow = 0;
    while (level(source, sink)) {
      next_ = first_;
      while (const int64_t more = push(source, sink, kNever * 4)) {
        flow += more;
      }
    }
    return flow;
  }

  // The nodes from which the sink can be reached through edges that are not full: its side of the cut.
  std::vector<bool> reaching(size_t sink) const {
    std::vector<bool> seen(first_.size(), false);
    std::vector<size_t> waiting{sink};
    seen[sink] = true;
    while (!waiting.empty()) {
      const size_t node = waiting.back();
      waiting.pop_back();
      for (int e = first_[node]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
        const size_t from = edges_[static_cast<size_t>(e)].to;
        if (!seen[from] && edges_[static_cast<size_t>(e ^ 1)].capacity > 0) {
          seen[from] = true;
          waiting.push_back(from);
        }
      }
    }
    return seen;
  }

 private:
  struct Edge {
    size_t to;
    int64_t capacity;
    int next;
  };

  void add(size_t from, size_t to, int64_t capacity) {
    edges_.push_back({to, capacity, first_[from]});
    first_[from] = static_cast<int>(edges_.size()) - 1;
  }

  bool level(size_t source, size_t sink) {
    level_.assign(first_.size(), -1);
    std::queue<size_t> waiting;
    waiting.push(source);
    level_[source] = 0;
    while (!waiting.empty()) {
      const size_t node = waiting.front();
      waiting.pop();
      for (int e = first_[node]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
        const Edge& edge = edges_[static_cast<size_t>(e)];
        if (edge.capacity > 0 && level_[edge.to] < 0) {
          level_[edge.to] = level_[node] + 1;
          waiting.push(edge.to);
        }
      }
    }
    return level_[sink] >= 0;
  }

  int64_t push(size_t node, size_t sink, int64_t most) {
    if (node == sink) {
      return most;
    }
    for (int& e = next_[node]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
      const size_t at = static_cast<size_t>(e);
      if (edges_[at].capacity > 0 && level_[edges_[at].to] == level_[node] + 1) {
        if (const int64_t pushed = push(edges_[at].to, sink, std::min(most, edges_[at].capacity))) {
          edges_[at].capacity -= pushed;
          edges_[at ^ 1].capacity += pushed;
          return pushed;
        }
      }
    }
    return 0;
  }

  std::vector<int> first_, next_;
  std::vector<Edge> edges_;
  std::vector<int> level_;
};

class Splitter {
 public:
  explicit Splitter(const GradientGraph& graph)
      : graph_(graph),
        trace_(graph.trace),
        madeBy_(trace_.values.size(), ir::kNone),
        isForward_(trace_.values.size(), false),
        needed_(trace_.values.size(), false),
        isVisible_(trace_.values.size(), false),
        whole_(trace_.values.size(), false),
        kept_(trace_.values.size(), false) {}

  TrainingSegments run() {
    findMakers();
    findLiveBackward();
    findNeeds();
    chooseKept();
    TrainingSegments out;
    out.gradBefore = graph_.gradBefore;
    makeBackward(out);
    makeForward(out);
    makeEpilogue(out);
    return out;
  }

 private:
  std::vector<ValueId> used(uint32_t at) const {
    std::vector<ValueId> values;
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[at]), values);
    return values;
  }
  Operator operatorOf(uint32_t at) const { return trace_.operatorOf(trace_.code[at]); }
  const std::string& nameOf(uint32_t at) const { return trace_.opNames[trace_.code[at].opName]; }

  void findMakers() {
    for (const ValueId input : graph_.inputs) {
      isForward_[input] = true;
    }
    const size_t inputs = graph_.inputs.size() - graph_.maskProbabilities.size();
    for (const ValueId input : std::span(graph_.inputs).first(inputs)) isVisible_[input] = true;
    for (const ValueId output : graph_.outputs) isVisible_[output] = true;
    for (const auto& [now, value] : graph_.now) isForward_[now] = isVisible_[now] = true;
    for (const auto* code : {&graph_.forward, &graph_.backward}) {
      for (const uint32_t at : *code) {
        const Instruction& ins = trace_.code[at];
        for (uint32_t r = 0; r < ins.resultCount; ++r) {
          madeBy_[ins.firstResult + r] = at;
          isForward_[ins.firstResult + r] = code == &graph_.forward;
        }
      }
    }
  }

  // Is the value a view of the first argument of the operator that made it?
  bool isView(ValueId value) const {
    const uint32_t at = madeBy_[value];
    return at != ir::kNone && gradientOf(operatorOf(at)) != nullptr &&
           sharingOf(trace_, trace_.code[at]) != Sharing::kNone;
  }

  // Is the value's memory that of an input or output, to which the program may write?
  bool sharesVisibleMemory(ValueId value) const {
    while (!isVisible_[value]) {
      const uint32_t at = madeBy_[value];
      if (at == ir::kNone || sharingOf(trace_, trace_.code[at]) == Sharing::kNone) return false;
      value = used(at).front();
    }
    return true;
  }

  bool isPointwise(uint32_t at) const {
    const Decomposition* row = decompositionOf(operatorOf(at));
    return row != nullptr && row->pointwise;
  }

  bool isFused(uint32_t at) const { return decompositionOf(operatorOf(at)) != nullptr; }

  void findLiveBackward() {
    std::vector<bool> live(trace_.values.size(), false);
    for (const ValueId gradient : graph_.gradients) {
      if (gradient != ir::kNone) {
        live[gradient] = true;
      }
    }
    for (size_t k = graph_.backward.size(); k-- > 0;) {
      const Instruction& ins = trace_.code[graph_.backward[k]];
      bool any = false;
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        any = any || live[ins.firstResult + r];
      }
      if (any) {
        backward_.push_back(graph_.backward[k]);
        for (const ValueId value : used(graph_.backward[k])) {
          live[value] = true;
        }
      }
    }
    std::reverse(backward_.begin(), backward_.end());
  }

  // Finds the values of the forward that the backward reads, and which of them a call (an operator that is
  // not fused) takes, directly or through views. A call needs the whole tensor, so it is saved.
  void findNeeds() {
    std::vector<bool> called(trace_.values.size(), false);
    for (size_t k = backward_.size(); k-- > 0;) {
      const uint32_t at = backward_[k];
      const Instruction& ins = trace_.code[at];
      const bool view = ins.resultCount == 1 && isView(ins.firstResult);
      const bool whole = view ? called[ins.firstResult] : !isFused(at);
      const bool tape = nameOf(at) == ops::kTapedGradients;
      for (const ValueId value : used(at)) {
        needed_[value] = needed_[value] || isForward_[value];
        called[value] = called[value] || whole;
      }
      if (tape) {
        for (const ValueId value : used(at)) {
          taped_.push_back(value);
        }
      }
    }
    for (ValueId value = 0; value < called.size(); ++value) {
      for (ValueId v = value; called[value] && isForward_[v] && needed_[value];) {
        whole_[v] = true;
        if (!isView(v)) {
          break;
        }
        v = used(madeBy_[v]).front();
      }
    }
  }

  int64_t bytesOf(ValueId value) const {
    const ir::Type& type = trace_.values[value];
    if (type.meta == ir::kNone) {
      return kNever;
    }
    const ir::TensorDesc& meta = trace_.metas[type.meta];
    int64_t bytes = std::max<int64_t>(1, elemSize(elemOf(meta.dtype)));
    for (const int64_t size : meta.sizes) {
      bytes *= size;
    }
    return std::max<int64_t>(1, bytes);
  }

  // A minimum cut between the values that can't be computed again (from the source on) and those that the
  // backward reads (at the sink). A value is an edge from node 2 * value to 2 * value + 1, whose capacity is
  // what it costs to save it; the values whose edges are cut are saved. If each cut has a value that must not
  // be saved, everything that the backward reads is saved.
  void chooseKept() {
    const size_t count = trace_.values.size();
    const size_t source = 2 * count, sink = 2 * count + 1;
    std::vector<bool> seen(count, false);
    std::vector<ValueId> waiting;
    MaxFlow flow(2 * count + 2);
    for (ValueId value = 0; value < count; ++value) {
      if (needed_[value]) {
        flow.edge(2 * value + 1, sink, kNever);
        waiting.push_back(value);
        seen[value] = true;
      }
    }
    while (!waiting.empty()) {
      const ValueId value = waiting.back();
      waiting.pop_back();
      const uint32_t at = madeBy_[value];
      flow.edge(2 * value, 2 * value + 1, weight(value));
      const bool recompute =
          at != ir::kNone && !isVisible_[value] && (isView(value) || mayComputeAgain(value));
      if (!recompute) {
        flow.edge(source, 2 * value, kNever);
        continue;
      }
      for (const ValueId argument : used(at)) {
        flow.edge(2 * argument + 1, 2 * value, kNever);
        if (!seen[argument]) {
          seen[argument] = true;
          waiting.push_back(argument);
        }
      }
    }
    const bool cut = flow.run(source, sink) < kNever;
    const std::vector<bool> reaching = flow.reaching(sink);
    for (ValueId value = 0; value < count; ++value) {
      kept_[value] = cut ? seen[value] && !reaching[2 * value] && reaching[2 * value + 1]
                         : needed_[value] && !isView(value);
    }
    for (const ValueId value : taped_) {
      kept_[value] = kept_[value] || isForward_[value];
    }
  }

  // An elementwise result, none of whose arguments the program may have written to since.
  bool mayComputeAgain(ValueId value) const {
    if (!isPointwise(madeBy_[value]) || whole_[value]) return false;
    const std::vector<ValueId> arguments = used(madeBy_[value]);
    return std::ranges::none_of(arguments, [&](ValueId argument) { return sharesVisibleMemory(argument); });
  }

  int64_t weight(ValueId value) const {
    const bool isInput = std::ranges::find(graph_.inputs, value) != graph_.inputs.end() ||
                         madeBy_[value] == ir::kNone;  // or a placeholder for one
    return isView(value) ? kNever : isInput ? 1 : bytesOf(value);
  }

  // Marks the instructions that compute `values` from the values that are `known`.
  void findMade(const std::vector<ValueId>& values, const std::vector<bool>& known, std::vector<bool>& made) {
    std::vector<ValueId> waiting = values;
    while (!waiting.empty()) {
      const ValueId value = waiting.back();
      waiting.pop_back();
      const uint32_t at = madeBy_[value];
      if (known[value] || at == ir::kNone || made[at]) {
        continue;
      }
      made[at] = true;
      for (const ValueId argument : used(at)) {
        waiting.push_back(argument);
      }
    }
  }

  void makeBackward(TrainingSegments& out) {
    std::vector<ValueId> values, inputs, outputs;
    for (const uint32_t at : backward_) {
      for (const ValueId value : used(at)) {
        if (isForward_[value]) {
          values.push_back(value);
        }
      }
    }
    std::vector<bool> made(trace_.code.size(), false);
    findMade(values, kept_, made);
    std::vector<uint32_t> code;
    std::copy_if(graph_.forward.begin(), graph_.forward.end(), std::back_inserter(code),
                 [&](uint32_t at) { return made[at]; });
    code.insert(code.end(), backward_.begin(), backward_.end());
    for (ValueId value = 0; value < kept_.size(); ++value) {
      if (!kept_[value]) continue;
      out.form.kept.push_back(keep(value));
      inputs.push_back(value);
    }
    const std::vector<ValueId> keptValues = inputs;
    addLeaves(keptValues, out.form);
    for (const ValueId incoming : graph_.incoming) {
      out.form.follows.push_back(incoming != ir::kNone);
      if (incoming != ir::kNone) {
        inputs.push_back(incoming);
      }
    }
    for (uint32_t k = 0; k < graph_.gradients.size(); ++k) {
      if (graph_.gradients[k] != ir::kNone) {
        outputs.push_back(graph_.gradients[k]);
        out.form.gets.push_back(k);
      }
    }
    out.backward = segmentOf(trace_, inputs, code, outputs);
    findDependences({graph_, backward_, isForward_, kept_, keptValues}, out.form);
  }

  ir::KeptForm::Kept keep(ValueId value) {
    const auto now = std::ranges::find(graph_.now, value, &std::pair<ValueId, ValueId>::first);
    if (now != graph_.now.end()) return {.place = *placeIn(graph_, now->second), .now = true};
    const auto place = placeIn(graph_, value);
    // A tape's backward needs the autograd graph of its result. The output of the node has no such graph, so
    // the tensor with the graph is saved besides.
    const bool taped = std::ranges::find(taped_, value) != taped_.end();
    if (place && !(taped && place->from == ir::SegmentPlace::From::kOutput)) return {.place = *place};
    own_.push_back(value);
    return {.place = {ir::SegmentPlace::From::kOwn, static_cast<uint32_t>(own_.size() - 1)}};
  }

  void addLeaves(const std::vector<ValueId>& keptValues, ir::KeptForm& form) const {
    for (const auto& [leaf, value] : graph_.leaves) {
      const auto at = std::ranges::find(keptValues, leaf);
      if (at == keptValues.end()) continue;
      form.leaves.push_back({static_cast<uint32_t>(at - keptValues.begin()), *placeIn(graph_, value)});
    }
  }

  // Operators without a derivative rule may raise, and so may those that check contents (an index).
  bool mayRaise(uint32_t at) const {
    const std::string_view name = nameOf(at);
    return ops::infoOf(ops::untapedOf(name)).has(ops::Trait::kRaisesOfData) ||
           (!ops::isTaped(name) && gradientOf(operatorOf(at)) == nullptr);
  }

  void makeForward(TrainingSegments& out) {
    std::vector<ValueId> outputs = graph_.outputs;
    outputs.insert(outputs.end(), own_.begin(), own_.end());
    const auto stays = [this](uint32_t at) {
      return std::ranges::find(graph_.epilogue, at) == graph_.epilogue.end() && mayRaise(at);
    };
    std::vector<ValueId> wanted = outputs;
    for (const uint32_t at : graph_.forward) {
      const std::vector<ValueId> taken = stays(at) ? used(at) : std::vector<ValueId>();
      wanted.insert(wanted.end(), taken.begin(), taken.end());
    }
    std::vector<bool> made(trace_.code.size(), false);
    findMade(wanted, std::vector<bool>(trace_.values.size(), false), made);
    std::vector<uint32_t> code;
    for (const uint32_t at : graph_.forward) {
      if (made[at] || stays(at)) code.push_back(at);
    }
    out.forward = segmentOf(trace_, graph_.inputs, code, outputs);
  }

  void makeEpilogue(TrainingSegments& out) {
    std::vector<ValueId> inputs = graph_.inputs, outputs;
    inputs.insert(inputs.end(), graph_.outputs.begin(), graph_.outputs.end());
    for (const ValueId value : graph_.results) {
      const auto place = placeIn(graph_, value);
      out.results.push_back(place.value_or(
          ir::SegmentPlace{ir::SegmentPlace::From::kOwn, static_cast<uint32_t>(outputs.size())}));
      if (place) continue;
      outputs.push_back(value);
      const auto at = std::ranges::find(graph_.program, madeBy_[value]);
      out.form.epilogueAt.push_back(static_cast<uint32_t>(at - graph_.program.begin() + 1));
      const auto viewed = std::ranges::find_if(
          out.form.gets, [&](uint32_t get) { return graph_.inputs[get] == viewedBy(value); });
      out.form.epilogueOf.push_back(static_cast<uint32_t>(viewed - out.form.gets.begin()));
    }
    out.epilogue = segmentOf(trace_, inputs, graph_.epilogue, outputs);
  }

  // The input or output that a tensor of the epilogue is a view of.
  ValueId viewedBy(ValueId value) const {
    while (!placeIn(graph_, value) && madeBy_[value] != ir::kNone) {
      const auto operands = trace_.operandsOf(trace_.code[madeBy_[value]]);
      if (operands.empty() || !operands[0].isValue()) break;
      value = operands[0].id;
    }
    return value;
  }

  const GradientGraph& graph_;
  const ir::Trace& trace_;
  std::vector<uint32_t> madeBy_;    // by value: the instruction that makes it
  std::vector<bool> isForward_;     // by value
  std::vector<uint32_t> backward_;  // the instructions of the backward that gradients need, in order
  std::vector<bool> needed_;        // by value of the forward: the backward reads it
  std::vector<bool> isVisible_;     // by value: an input or output, to which the program may write
  std::vector<bool> whole_;         // by value that is needed: a call takes it, or a view of it
  std::vector<ValueId> taped_;      // operands of `taped.gradients`
  std::vector<bool> kept_;          // by value: it is saved
  std::vector<ValueId> own_;        // saved values that are neither input nor output
};

}  // namespace

std::string print(const TrainingSegments& parts) {
  std::string out = "forward\n" + ir::print(parts.forward) + "backward\n" + ir::print(parts.backward);
  if (parts.epilogue.code.size() > 2) out += "epilogue\n" + ir::print(parts.epilogue);
  return out;
}

TrainingSegments splitGradients(const GradientGraph& graph) { return Splitter(graph).run(); }

}  // namespace kintsugi::passes
