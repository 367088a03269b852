#include "passes/order_steps.h"

#include <algorithm>

#include "passes/simplify_graph.h"

namespace kintsugi::passes {

namespace {

// What a step does to memory: tensors by the node whose memory it is.
struct Effects {
  std::vector<NodeId> reads;
  std::vector<NodeId> makes;
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

  Effects effectsOf(const NativeStep& step, const NativeProgram& program) const {
    Effects out;
    if (step.kind == StepKind::kKernel) {
      for (const KernelAccess& access : program.kernels[step.kernel].accesses) {
        access.store ? out.makes.push_back(access.node) : addRoots(access.node, out.reads);
      }
      std::sort(out.makes.begin(), out.makes.end());
      out.makes.erase(std::unique(out.makes.begin(), out.makes.end()), out.makes.end());
      return out;
    }
    const Node& node = graph_.nodes[step.node];
    for (const NodeId arg : node.args) {
      addRoots(arg, out.reads);
    }
    std::sort(out.reads.begin(), out.reads.end());
    out.reads.erase(std::unique(out.reads.begin(), out.reads.end()), out.reads.end());
    if (step.kind == StepKind::kView) {
      out.makes = {step.node};
    } else {
      out.call = !node.product;
      for (const NodeId result : results_[step.node]) {
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

// How much is taken while steps run one after the other.
class Memory {
 public:
  explicit Memory(const Steps& steps) : steps_(steps), uses_(steps.nodes(), 0), there_(steps.nodes(), false) {
    for (uint32_t at = 0; at < steps.count(); ++at) {
      forEach(steps.at(at), [&](NodeId id) { ++uses_[id]; });
    }
  }

  // What is taken afterwards, less what is taken now.
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
    for (const NodeId id : effects.makes) {
      taken_ += there_[id] ? 0 : steps_.bytes(id);
      there_[id] = true;
    }
    peak_ = std::max(peak_, taken_);
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

// A step waits for those before it that make what it reads, and a call for the one before it.
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

  std::vector<uint32_t> run() {
    Memory memory(steps_);
    std::vector<bool> done(steps_.count(), false);
    std::vector<uint32_t> order, ready;
    for (uint32_t at = 0; at < steps_.count(); ++at) {
      if (waits_[at] == 0) {
        ready.push_back(at);
      }
    }
    constexpr size_t kMostLooked = 64;
    uint32_t next = 0;
    while (order.size() < steps_.count()) {
      next += done[next] ? 1 : 0;
      if (done[next]) {
        continue;
      }
      // All before the next one is done, so it is ready.
      uint32_t best = next;
      int64_t least = 0;
      for (size_t k = 0; k < std::min(ready.size(), kMostLooked); ++k) {
        const uint32_t at = ready[k];
        const int64_t change = memory.change(at);
        if (change < least || (change == least && change < 0 && at < best)) {
          best = at;
          least = change;
        }
      }
      memory.run(best);
      done[best] = true;
      order.push_back(best);
      ready.erase(std::find(ready.begin(), ready.end(), best));
      for (const uint32_t user : users_[best]) {
        if (--waits_[user] == 0) {
          ready.push_back(user);
        }
      }
    }
    return order;
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

void reorder(const TensorGraph& graph, NativeProgram& program) {
  const Steps steps(graph, program);
  const std::vector<uint32_t> order = Orderer(steps).run();
  const MemoryUse before = measure(steps, asItIs(steps.count())), after = measure(steps, order);
  if (after.peak > before.peak || (after.peak == before.peak && after.distance >= before.distance)) {
    return;
  }
  std::vector<NativeStep> ordered;
  for (const uint32_t at : order) {
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
