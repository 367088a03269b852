#include "passes/split_gradients.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "ir/segments.h"
#include "ops/operator.h"
#include "passes/build_graph.h"
#include "passes/gradient_builder.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Operand;
using ir::ValueId;
using ops::Operator;
using ops::Trait;

namespace {

constexpr int64_t kNever = int64_t{1} << 50;

// Maximum flow (Dinic) over numbered nodes.
class Flow {
 public:
  explicit Flow(size_t nodes) : first_(nodes, -1) {}

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

  // From which nodes the sink can still be reached.
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
        neededByRules_(trace_.values.size(), false),
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

  // Is a value only another look at its maker's first argument?
  bool isView(ValueId value) const {
    const uint32_t at = madeBy_[value];
    if (at == ir::kNone) {
      return false;
    }
    const Operator op = operatorOf(at);
    if (gradientOf(op) == nullptr || ops::has(op, Trait::kFresh)) {
      return false;
    }
    const ValueId base = used(at).front();
    const ir::TensorMeta& from = trace_.metas[trace_.values[base].meta];
    const ir::TensorMeta& to = trace_.metas[trace_.values[value].meta];
    const bool packed =
        from.strides.empty() || isContiguous(fixedSizes(from.sizes), fixedSizes(from.strides));
    // These copy where they have to.
    const bool mayCopy = ops::has(op, Trait::kMayCopy);
    return !mayCopy || (packed && from.dtype == to.dtype);
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

  // What the backward takes from the forward, and what of it calls take, through views or not.
  void findNeeds() {
    std::vector<bool> called(trace_.values.size(), false);
    for (size_t k = backward_.size(); k-- > 0;) {
      const uint32_t at = backward_[k];
      const Instruction& ins = trace_.code[at];
      const bool looks = ins.resultCount == 1 && isView(ins.firstResult);
      const bool whole = looks ? called[ins.firstResult] : !isFused(at);
      const bool tape = nameOf(at) == "taped.gradients";
      for (const ValueId value : used(at)) {
        needed_[value] = needed_[value] || isForward_[value];
        neededByRules_[value] = neededByRules_[value] || (isForward_[value] && !tape);
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
    const ir::TensorMeta& meta = trace_.metas[type.meta];
    int64_t bytes = std::max<int64_t>(1, elemSize(elemOf(meta.dtype)));
    for (const int64_t size : meta.sizes) {
      bytes *= size;
    }
    return std::max<int64_t>(1, bytes);
  }

  // A view, or an alias that has no derivative (detach): it shares the version of what it looks at.
  bool sharesVersion(ValueId value) const {
    const uint32_t at = madeBy_[value];
    return at != ir::kNone &&
           (isView(value) || (passes::isView(operatorOf(at)) && !ops::has(operatorOf(at), Trait::kMayCopy)));
  }

  // Kept by eager mode: what the backward takes, and what views that it takes look at.
  std::vector<bool> withBases(const std::vector<bool>& taken) const {
    std::vector<bool> keeps = taken;
    for (ValueId value = static_cast<ValueId>(keeps.size()); value-- > 0;) {
      for (ValueId v = value; taken[value] && sharesVersion(v);) {
        v = used(madeBy_[v]).front();
        keeps[v] = true;
      }
    }
    return keeps;
  }

  void chooseKept() {
    const size_t count = trace_.values.size();
    const size_t source = 2 * count, sink = 2 * count + 1;
    const std::vector<bool> eager = withBases(needed_);
    std::vector<bool> seen(count, false);
    std::vector<ValueId> waiting;
    Flow flow(2 * count + 2);
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
      flow.edge(2 * value, 2 * value + 1, weight(value, eager[value]));
      const bool again = at != ir::kNone && (isView(value) || (isPointwise(at) && !whole_[value]));
      if (!again) {
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
                         : eager[value] && !isView(value);
    }
    for (const ValueId value : taped_) {
      kept_[value] = kept_[value] || isForward_[value];
    }
  }

  int64_t weight(ValueId value, bool eager) const {
    const bool isInput = std::find(graph_.inputs.begin(), graph_.inputs.end(), value) != graph_.inputs.end();
    const bool isOutput =
        std::find(graph_.outputs.begin(), graph_.outputs.end(), value) != graph_.outputs.end();
    const auto masks = graph_.inputs.end() - static_cast<std::ptrdiff_t>(graph_.draws.size());
    const bool isMask = std::find(masks, graph_.inputs.end(), value) != graph_.inputs.end();
    if (isView(value) || ((isInput || isOutput) && !eager && !isMask)) {
      return kNever;
    }
    return isInput ? 1 : bytesOf(value);
  }

  // What has to be computed for the values, down to those of `known`.
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

  bool isKeptAsView(ValueId value) const {
    return std::find(graph_.viewsKept.begin(), graph_.viewsKept.end(), value) != graph_.viewsKept.end();
  }

  void watch(ValueId value, TrainingSegments& out) {
    using From = TrainingSegments::Kept::From;
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), value);
    const auto output = std::find(graph_.outputs.begin(), graph_.outputs.end(), value);
    if (input != graph_.inputs.end()) {
      out.watched.push_back({From::kInput, static_cast<uint32_t>(input - graph_.inputs.begin())});
    } else if (output != graph_.outputs.end()) {
      out.watched.push_back({From::kOutput, static_cast<uint32_t>(output - graph_.outputs.begin())});
    } else {
      return;
    }
    watchedValues_.push_back(value);
  }

  // Eager mode has a node for each operator. Which of them run, what they take, and which inputs get a
  // gradient follows from which outputs have one: here, as bits.
  void findDependences(const std::vector<ValueId>& keptValues, TrainingSegments& out) const {
    // By value: the outputs whose gradients it is made of; those for whose gradients it is used.
    std::vector<uint64_t> madeOf(trace_.values.size(), 0), takes(trace_.values.size(), 0);
    uint64_t next = 1;
    for (const ValueId incoming : graph_.incoming) {
      if (incoming == ir::kNone) continue;
      if (next == 0) {
        out.together.clear();
        return;
      }
      madeOf[incoming] = next;
      out.together.push_back(next);
      next <<= 1;
    }
    for (const uint32_t at : backward_) {
      const Instruction& ins = trace_.code[at];
      for (const ValueId value : used(at)) {
        for (uint32_t r = 0; r < ins.resultCount; ++r) madeOf[ins.firstResult + r] |= madeOf[value];
      }
    }
    for (size_t k = backward_.size(); k-- > 0;) {
      const Instruction& ins = trace_.code[backward_[k]];
      uint64_t outputs = 0;  // of what no gradient is part of, those for which it is computed
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        const ValueId result = ins.firstResult + r;
        outputs |= madeOf[result] != 0 ? madeOf[result] : takes[result];
      }
      bool takesForward = false;
      for (const ValueId value : used(backward_[k])) {
        takes[value] |= outputs;
        takesForward = takesForward || isForward_[value];
      }
      if (takesForward) join(out.together, outputs);
    }
    // A gradient that is a constant (zeros, of a step function) comes with whichever arrives.
    for (const uint32_t k : out.gets) {
      const uint64_t outputs = madeOf[graph_.gradients[k]];
      out.feeds.push_back(outputs != 0 ? outputs : ~uint64_t{0});
    }
    std::vector<uint64_t> bases = takes;  // what a view that is taken looks at
    for (ValueId value = static_cast<ValueId>(bases.size()); value-- > 0;) {
      if (bases[value] != 0 && sharesVersion(value)) bases[used(madeBy_[value]).front()] |= bases[value];
    }
    for (const ValueId value : watchedValues_) out.watchedFor.push_back(bases[value]);
    // What is computed again needs what it is computed of.
    for (size_t k = graph_.forward.size(); k-- > 0;) {
      const Instruction& ins = trace_.code[graph_.forward[k]];
      uint64_t outputs = 0;
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        outputs |= kept_[ins.firstResult + r] ? 0 : takes[ins.firstResult + r];
      }
      for (const ValueId value : used(graph_.forward[k])) takes[value] |= outputs;
    }
    for (const ValueId value : keptValues) out.keptFor.push_back(takes[value]);
  }

  // Outputs of one set belong to one group from now on.
  static void join(std::vector<uint64_t>& together, uint64_t outputs) {
    uint64_t all = outputs;
    for (size_t k = 0; k < together.size(); ++k) {
      if ((outputs >> k & 1) != 0) all |= together[k];
    }
    for (size_t k = 0; k < together.size(); ++k) {
      if ((all >> k & 1) != 0) together[k] = all;
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
    using From = TrainingSegments::Kept::From;
    const std::vector<bool> eager = withBases(neededByRules_);
    out.hasTapes = !taped_.empty();
    for (uint32_t k = 0; k < graph_.inputs.size(); ++k) {
      if (neededByRules_[graph_.inputs[k]] && !isKeptAsView(graph_.inputs[k])) out.asIs.push_back(k);
    }
    for (ValueId value = 0; value < kept_.size(); ++value) {
      if (!kept_[value]) {
        if (eager[value]) watch(value, out);
        continue;
      }
      const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), value);
      const auto output = std::find(graph_.outputs.begin(), graph_.outputs.end(), value);
      const bool taped = std::find(taped_.begin(), taped_.end(), value) != taped_.end();
      if (input != graph_.inputs.end()) {
        out.kept.push_back({From::kInput, static_cast<uint32_t>(input - graph_.inputs.begin())});
        if (isKeptAsView(value) || (!neededByRules_[value] && !taped)) {
          out.byView.push_back(out.kept.back().index);
        }
      } else if (output != graph_.outputs.end() && !taped) {
        out.kept.push_back({From::kOutput, static_cast<uint32_t>(output - graph_.outputs.begin())});
      } else {
        out.kept.push_back({From::kOwn, static_cast<uint32_t>(own_.size())});
        own_.push_back(value);
      }
      inputs.push_back(value);
    }
    const std::vector<ValueId> keptValues = inputs;
    for (const ValueId incoming : graph_.incoming) {
      out.follows.push_back(incoming != ir::kNone);
      if (incoming != ir::kNone) {
        inputs.push_back(incoming);
      }
    }
    for (uint32_t k = 0; k < graph_.gradients.size(); ++k) {
      if (graph_.gradients[k] != ir::kNone) {
        outputs.push_back(graph_.gradients[k]);
        out.gets.push_back(k);
      }
    }
    out.backward = segmentOf(trace_, inputs, code, outputs);
    findDependences(keptValues, out);
  }

  void makeForward(TrainingSegments& out) {
    std::vector<ValueId> outputs = graph_.outputs;
    outputs.insert(outputs.end(), own_.begin(), own_.end());
    std::vector<bool> made(trace_.code.size(), false);
    findMade(outputs, std::vector<bool>(trace_.values.size(), false), made);
    std::vector<uint32_t> code;
    for (const uint32_t at : graph_.forward) {
      const bool inEpilogue =
          std::find(graph_.epilogue.begin(), graph_.epilogue.end(), at) != graph_.epilogue.end();
      // Whoever has no rule may raise.
      if (made[at] ||
          (!inEpilogue && gradientOf(operatorOf(at)) == nullptr && !nameOf(at).starts_with("taped."))) {
        code.push_back(at);
      }
    }
    out.forward = segmentOf(trace_, graph_.inputs, code, outputs);
  }

  void makeEpilogue(TrainingSegments& out) {
    using From = TrainingSegments::Result::From;
    std::vector<ValueId> inputs = graph_.inputs, outputs;
    inputs.insert(inputs.end(), graph_.outputs.begin(), graph_.outputs.end());
    for (const ValueId value : graph_.results) {
      const auto at = static_cast<size_t>(std::find(inputs.begin(), inputs.end(), value) - inputs.begin());
      if (at < graph_.inputs.size()) {
        out.results.push_back({From::kInput, static_cast<uint32_t>(at)});
      } else if (at < inputs.size()) {
        out.results.push_back({From::kOutput, static_cast<uint32_t>(at - graph_.inputs.size())});
      } else {
        out.results.push_back({From::kEpilogue, static_cast<uint32_t>(outputs.size())});
        outputs.push_back(value);
      }
    }
    out.epilogue = segmentOf(trace_, inputs, graph_.epilogue, outputs);
  }

  const GradientGraph& graph_;
  const ir::Trace& trace_;
  std::vector<uint32_t> madeBy_;     // by value
  std::vector<bool> isForward_;      // by value
  std::vector<uint32_t> backward_;   // what leads to gradients, in order
  std::vector<bool> needed_;         // by value of the forward: the backward takes it
  std::vector<bool> neededByRules_;  // ... for a derivative rule, which takes what autograd keeps
  std::vector<bool> whole_;          // ... and a call takes it, or a view of it
  std::vector<ValueId> taped_;       // what gradients of taped operators take
  std::vector<bool> kept_;
  std::vector<ValueId> watchedValues_;
  std::vector<ValueId> own_;  // kept, and neither input nor result
};

}  // namespace

TrainingSegments splitGradients(const GradientGraph& graph) { return Splitter(graph).run(); }

}  // namespace kintsugi::passes
