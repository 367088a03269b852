#include "passes/order_steps.h"

#include <algorithm>
#include <list>

#include "passes/simplify_graph.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

// What a step does to memory: tensors by the node whose memory it is.
struct Effects {
  std::vector<NodeId> reads;
  std::vector<NodeId> makes;
  std::vector<std::pair<NodeId, NodeId>> over;  // what may be made in the memory of which one, if it goes
  bool call = false;
};

class Steps {
 public:
  Steps(const TensorGraph& graph, const NativeProgram& program)
      : graph_(graph), escapes_(escapingNodes(graph)), results_(graph.nodes.size()) {
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      if (graph.nodes[id].kind == NodeKind::kResult) {
        results_[graph.nodes[id].args[0]].push_back(id);
      }
    }
    for (const NativeStep& step : program.steps) {
      effects_.push_back(effectsOf(step, program));
    }
  }

  size_t count() const { return effects_.size(); }
  const Effects& at(uint32_t step) const { return effects_[step]; }

  int64_t bytes(NodeId id) const {
    const Node& node = graph_.nodes[id];
    const bool own = isCore(node) || node.kind == NodeKind::kJoin || node.kind == NodeKind::kResult;
    return own ? elementCount(node.sizes).hint * elemSize(node.elem) : 0;
  }
  bool escapes(NodeId id) const { return escapes_[id]; }
  size_t nodes() const { return graph_.nodes.size(); }

 private:
  // The memory of a node, what else it may lie in, and the views in between.
  void addRoots(NodeId id, std::vector<NodeId>& out) const {
    for (; graph_.nodes[id].kind == NodeKind::kView; id = graph_.nodes[id].args[0]) {
      out.push_back(id);
    }
    const NodeId base = tensorOf(graph_, id).base;
    const Node& node = graph_.nodes[base];
    if (node.kind == NodeKind::kConst || std::find(out.begin(), out.end(), base) != out.end()) {
      return;
    }
    out.push_back(base);
    if (node.kind == NodeKind::kResult && !node.fresh) {
      for (const NodeId arg : graph_.nodes[node.args[0]].args) {
        addRoots(arg, out);
      }
    }
  }

  // About as the plan does it (driver/native_overwrites.h).
  void addOver(const Kernel& kernel, Effects& out) const {
    if (kernel.product || kernel.attention) {
      return;
    }
    for (const KernelAccess& to : kernel.accesses) {
      for (const KernelAccess& from : kernel.accesses) {
        const bool same = to.store && !from.store && to.elem == from.elem && to.offset == 0 &&
                          from.offset == 0 && to.strides == from.strides && !from.transposed &&
                          from.repeat == 1;
        const NodeId base = same ? tensorOf(graph_, from.node).base : ir::kNone;
        if (same && bytes(base) != 0 && bytes(base) == bytes(to.node)) {
          out.over.emplace_back(to.node, base);
        }
      }
    }
  }

  Effects effectsOf(const NativeStep& step, const NativeProgram& program) const {
    Effects out;
    if (step.kind == StepKind::kKernel) {
      KINTSUGI_CHECK(step.kernel < program.kernels.size(), "kernel ", step.kernel);
      for (const KernelAccess& access : program.kernels[step.kernel].accesses) {
        access.store ? out.makes.push_back(access.node) : addRoots(access.node, out.reads);
      }
      std::sort(out.makes.begin(), out.makes.end());
      out.makes.erase(std::unique(out.makes.begin(), out.makes.end()), out.makes.end());
      addOver(program.kernels[step.kernel], out);
      return out;
    }
    KINTSUGI_CHECK(step.node < graph_.nodes.size(), "node ", step.node);
    const Node& node = graph_.nodes[step.node];
    for (const NodeId arg : node.args) {
      addRoots(arg, out.reads);
    }
    std::sort(out.reads.begin(), out.reads.end());
    out.reads.erase(std::unique(out.reads.begin(), out.reads.end()), out.reads.end());
    if (step.kind == StepKind::kView) {
      out.makes = {step.node};
    } else {
      // What surely makes new tensors, and no more, has no order.
      const std::vector<NodeId>& results = results_[step.node];
      out.call =
          !node.product && (results.empty() || std::any_of(results.begin(), results.end(), [this](NodeId id) {
                              return !graph_.nodes[id].fresh && !graph_.nodes[id].unaliased;
                            }));
      for (const NodeId result : results) {
        out.makes.push_back(tensorOf(graph_, result).base);
      }
    }
    return out;
  }

  const TensorGraph& graph_;
  const std::vector<bool> escapes_;
  std::vector<std::vector<NodeId>> results_;  // by call
  std::vector<Effects> effects_;
};

// The memory that is in use while steps run one after the other.
class Memory {
 public:
  explicit Memory(const Steps& steps) : steps_(steps), uses_(steps.nodes(), 0), there_(steps.nodes(), false) {
    for (uint32_t at = 0; at < steps.count(); ++at) {
      forEach(steps.at(at), [&](NodeId id) { ++uses_[id]; });
    }
  }

  // The change of memory in use by a step.
  int64_t change(uint32_t step) const {
    int64_t bytes = 0;
    const Effects& effects = steps_.at(step);
    for (const NodeId id : effects.makes) {
      bytes += there_[id] ? 0 : steps_.bytes(id);
    }
    forEach(effects,
            [&](NodeId id) { bytes -= uses_[id] == 1 && !steps_.escapes(id) ? steps_.bytes(id) : 0; });
    return bytes;
  }

  void run(uint32_t step) {
    const Effects& effects = steps_.at(step);
    int64_t reused = 0;
    NodeId from = ir::kNone;
    for (const NodeId id : effects.makes) {
      const auto over = std::find_if(effects.over.begin(), effects.over.end(), [&](const auto& pair) {
        return pair.first == id && pair.second != from && uses_[pair.second] == 1 &&
               !steps_.escapes(pair.second);
      });
      if (!there_[id] && over != effects.over.end()) {
        from = over->second;
        reused += steps_.bytes(id);
      }
      taken_ += there_[id] ? 0 : steps_.bytes(id);
      there_[id] = true;
    }
    peak_ = std::max(peak_, taken_ - reused);
    forEach(effects, [&](NodeId id) {
      --uses_[id];
      taken_ -= uses_[id] == 0 && !steps_.escapes(id) ? steps_.bytes(id) : 0;
    });
  }

  int64_t peak() const { return peak_; }

 private:
  // Each tensor that a step makes or reads, once.
  template <class Visit>
  static void forEach(const Effects& effects, Visit visit) {
    for (const NodeId id : effects.makes) {
      visit(id);
    }
    for (const NodeId id : effects.reads) {
      if (std::find(effects.makes.begin(), effects.makes.end(), id) == effects.makes.end()) {
        visit(id);
      }
    }
  }

  const Steps& steps_;
  std::vector<uint32_t> uses_;  // that are still to come
  std::vector<bool> there_;
  int64_t taken_ = 0, peak_ = 0;
};

MemoryUse measure(const Steps& steps, const std::vector<uint32_t>& order) {
  Memory memory(steps);
  MemoryUse use;
  std::vector<int64_t> madeAt(steps.nodes(), -1);
  int64_t touched = 0;
  for (const uint32_t at : order) {
    const Effects& effects = steps.at(at);
    for (const NodeId id : effects.reads) {
      use.distance += madeAt[id] >= 0 ? touched - madeAt[id] : 0;
      touched += steps.bytes(id);
    }
    for (const NodeId id : effects.makes) {
      touched += steps.bytes(id);
      madeAt[id] = touched;
    }
    memory.run(at);
  }
  use.peak = memory.peak();
  return use;
}

// A step depends on the steps that make what it reads. A call that may have effects also depends on the one
// before it.
class Orderer {
 public:
  explicit Orderer(const Steps& steps) : steps_(steps), waits_(steps.count(), 0), users_(steps.count()) {
    std::vector<std::vector<uint32_t>> makers(steps.nodes());
    uint32_t call = ir::kNone;
    for (uint32_t at = 0; at < steps.count(); ++at) {
      const Effects& effects = steps.at(at);
      for (const NodeId id : effects.reads) {
        for (const uint32_t maker : makers[id]) {
          addEdge(maker, at);
        }
      }
      if (effects.call) {
        addEdge(call, at);
        call = at;
      }
      for (const NodeId id : effects.makes) {
        makers[id].push_back(at);
      }
    }
  }

  // List scheduling. `rank`: the order among ready steps; with `eager`, a step that frees memory comes first.
  std::vector<uint32_t> run(const std::vector<uint32_t>& rank, bool eager) {
    Memory memory(steps_);
    std::vector<uint32_t> waits = waits_, order, ready;
    for (uint32_t at = 0; at < steps_.count(); ++at) {
      if (waits[at] == 0) {
        ready.push_back(at);
      }
    }
    // Steps that are compared for each place. More make planning quadratic in wide programs; with fewer, the
    // step that frees the most memory may be missed.
    constexpr size_t kMostLooked = 64;
    while (order.size() < steps_.count()) {
      uint32_t best = *std::min_element(ready.begin(), ready.end(),
                                        [&](uint32_t a, uint32_t b) { return rank[a] < rank[b]; });
      int64_t least = 0;
      for (size_t k = 0; eager && k < std::min(ready.size(), kMostLooked); ++k) {
        const uint32_t at = ready[k];
        const int64_t change = memory.change(at);
        if (change < least || (change == least && change < 0 && rank[at] < rank[best])) {
          best = at;
          least = change;
        }
      }
      memory.run(best);
      order.push_back(best);
      ready.erase(std::find(ready.begin(), ready.end(), best));
      for (const uint32_t user : users_[best]) {
        if (--waits[user] == 0) {
          ready.push_back(user);
        }
      }
    }
    return order;
  }

  // The same order, but for steps that drop no more than they make: these run right before the first one
  // that waits for them.
  std::vector<uint32_t> sunk(const std::vector<uint32_t>& order) {
    Memory memory(steps_);
    std::vector<bool> sinks(steps_.count(), false);
    for (const uint32_t at : order) {
      sinks[at] = !steps_.at(at).call && memory.change(at) >= 0;
      memory.run(at);
    }
    std::list<uint32_t> out;
    std::vector<bool> isUser(steps_.count(), false);
    for (size_t k = order.size(); k-- > 0;) {
      const uint32_t at = order[k];
      auto place = out.begin();
      if (sinks[at] && !users_[at].empty()) {
        for (const uint32_t user : users_[at]) {
          isUser[user] = true;
        }
        place = std::find_if(out.begin(), out.end(), [&](uint32_t step) { return isUser[step]; });
        for (const uint32_t user : users_[at]) {
          isUser[user] = false;
        }
      }
      out.insert(place, at);
    }
    return {out.begin(), out.end()};
  }

 private:
  void addEdge(uint32_t from, uint32_t to) {
    if (from != ir::kNone) {
      users_[from].push_back(to);
      ++waits_[to];
    }
  }

  const Steps& steps_;
  std::vector<uint32_t> waits_;
  std::vector<std::vector<uint32_t>> users_;
};

std::vector<uint32_t> asItIs(size_t count) {
  std::vector<uint32_t> order(count);
  for (uint32_t at = 0; at < count; ++at) {
    order[at] = at;
  }
  return order;
}

// Where the program itself has what a step makes first.
std::vector<uint32_t> asInProgram(const Steps& steps) {
  std::vector<uint32_t> rank(steps.count(), 0);
  for (uint32_t at = 0; at < steps.count(); ++at) {
    const std::vector<NodeId>& makes = steps.at(at).makes;
    rank[at] = makes.empty() ? 0 : *std::min_element(makes.begin(), makes.end());
  }
  return rank;
}

void reorder(const TensorGraph& graph, NativeProgram& program) {
  const Steps steps(graph, program);
  Orderer orderer(steps);
  std::vector<uint32_t> best = asItIs(steps.count());
  MemoryUse least = measure(steps, best);
  bool changed = false;
  const auto tryOrder = [&](std::vector<uint32_t> order) {
    const MemoryUse use = measure(steps, order);
    if (use.peak < least.peak || (use.peak == least.peak && use.distance < least.distance)) {
      least = use;
      best = std::move(order);
      changed = true;
    }
  };
  for (const std::vector<uint32_t>& rank : {asItIs(steps.count()), asInProgram(steps)}) {
    for (const bool eager : {false, true}) {
      const std::vector<uint32_t> order = orderer.run(rank, eager);
      tryOrder(orderer.sunk(order));
      tryOrder(order);
    }
  }
  if (!changed) {
    return;
  }
  std::vector<NativeStep> ordered;
  for (const uint32_t at : best) {
    ordered.push_back(program.steps[at]);
  }
  program.steps = std::move(ordered);
}

}  // namespace

void orderSteps(const TensorGraph& graph, NativeProgram& program) {
  const bool open = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.kind == NodeKind::kResult && (node.open || node.elem == Elem::kOther);
  });
  if (open || program.steps.empty()) {
    return;
  }
  // What writes to inputs comes last.
  const auto last = program.steps.begin() + static_cast<std::ptrdiff_t>(program.undoable);
  const std::vector<NativeStep> fixed(last, program.steps.end());
  program.steps.erase(last, program.steps.end());
  reorder(graph, program);
  program.steps.insert(program.steps.end(), fixed.begin(), fixed.end());
}

MemoryUse memoryUse(const TensorGraph& graph, const NativeProgram& program) {
  const Steps steps(graph, program);
  return measure(steps, asItIs(steps.count()));
}

}  // namespace kintsugi::passes
