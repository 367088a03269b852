#include "passes/program_verifier.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "support/check.h"
#include "support/verification.h"

namespace kintsugi::passes {

namespace {

using ir::Problem;

constexpr size_t kMaxProblems = 20;
constexpr size_t kEnd = static_cast<size_t>(-1);

class Verifier {
 public:
  Verifier(const NativeProgram& program, const TensorGraph& graph)
      : program_(program),
        graph_(graph),
        nodes_(graph.nodes),
        parts_(graph.nodes.size()),
        done_(graph.nodes.size()) {
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (isCore(nodes_[id]) && nodes_[id].home != ir::kNone) parts_[tensorOf(graph_, id).base].push_back(id);
    }
  }

  std::vector<Problem> run() {
    if (checkRanges()) {
      for (size_t at = 0; at < program_.steps.size(); ++at) checkStep(at);
      checkEnd();
    }
    return std::move(problems_);
  }

 private:
  // A part of the memory of a tensor: whose, and from which element on.
  using Part = std::pair<NodeId, int64_t>;

  void problem(size_t step, std::string message) {
    if (problems_.size() < kMaxProblems) {
      problems_.push_back({step == kEnd ? "program" : "step " + std::to_string(step), std::move(message)});
    }
  }
  static std::string named(NodeId id) { return "n" + std::to_string(id); }

  bool checkRanges() {
    std::vector<size_t> runs(program_.kernels.size());
    for (size_t at = 0; at < program_.steps.size(); ++at) {
      const NativeStep& step = program_.steps[at];
      const bool there =
          step.kind == StepKind::kKernel ? step.kernel < runs.size() : step.node < nodes_.size();
      if (!there) {
        problem(at, "runs what is not there");
      } else if (step.kind == StepKind::kKernel) {
        ++runs[step.kernel];
      }
    }
    for (size_t k = 0; k < runs.size(); ++k) {
      if (runs[k] != 1)
        problem(kEnd, "kernel " + std::to_string(k) + " is run by " + std::to_string(runs[k]));
      for (const KernelAccess& access : program_.kernels[k].accesses) {
        if (access.node >= nodes_.size())
          problem(kEnd, "kernel " + std::to_string(k) + " has no such memory");
      }
    }
    if (program_.undoable > program_.steps.size()) problem(kEnd, "more steps can be undone than there are");
    return problems_.empty();
  }

  void checkStep(size_t at) {
    const NativeStep& step = program_.steps[at];
    if (step.kind == StepKind::kKernel) {
      checkKernel(at, program_.kernels[step.kernel]);
      return;
    }
    const Node& node = nodes_[step.node];
    if (node.kind != (step.kind == StepKind::kCall ? NodeKind::kCall : NodeKind::kView)) {
      problem(at, named(step.node) + " is of another kind");
    }
    if (done_[step.node]) problem(at, named(step.node) + " a second time");
    for (const NodeId arg : node.args) {
      node.product ? needMemory(at, memoryOf(graph_, arg).base) : needTensor(at, arg);
    }
    done_[step.node] = true;
  }

  void checkKernel(size_t at, const Kernel& kernel) {
    kernel.checkForm();
    for (const KernelAccess& access : kernel.accesses) {
      if (!access.store && !readsMadePart(kernel, access)) needMemory(at, access.node);
    }
    for (const KernelStore& store : kernel.stores) {
      const KernelAccess& access = kernel.accesses[store.access];
      const Node& base = nodes_[access.node];
      const bool toInput = base.kind == NodeKind::kInput;
      if (!toInput && !isCore(base) && base.kind != NodeKind::kJoin) {
        problem(at, "stores to " + named(access.node) + ", which no kernel computes");
      }
      if (toInput && at < program_.undoable) {
        problem(at, "stores to input " + named(access.node) + ", and steps behind it are to be undone");
      }
      const bool isNew = made_.insert({access.node, access.offset}).second;
      if (!isNew && !toInput && elementCount(base.sizes).hint != 0) {
        problem(at, "stores to " + named(access.node) + " again");
      }
    }
  }

  // A concatenation may be read in part before all of it is there. Which part it is can't be told by where it
  // begins, since rows of parts lie side by side; no more is read than a part that is there has elements.
  bool readsMadePart(const Kernel& kernel, const KernelAccess& access) const {
    if (nodes_[access.node].kind != NodeKind::kJoin) {
      return false;
    }
    int64_t read = 1;
    for (size_t d = 0; d < access.strides.size() && d < kernel.sizes.size(); ++d) {
      if (access.strides[d].hint != 0) read *= kernel.sizes[d].hint;
    }
    return std::ranges::any_of(parts_[access.node], [&](NodeId part) {
      return missingIn(part) == ir::kNone && read <= elementCount(nodes_[part].sizes).hint;
    });
  }

  // The tensor itself, not only its memory.
  void needTensor(size_t at, NodeId id) {
    if (nodes_[id].kind == NodeKind::kView && !done_[id]) {
      problem(at, "takes view " + named(id) + " before it is made");
    }
    needMemory(at, memoryOf(graph_, id).base);
  }

  void needMemory(size_t at, NodeId id) {
    if (const NodeId missing = missingIn(id); missing != ir::kNone) {
      problem(at, "reads " + named(id) + " before " + (missing == id ? "it" : named(missing)) + " is made");
    }
  }

  // kNone: all of its memory has been written.
  NodeId missingIn(NodeId id) const {
    const Node& node = nodes_[id];
    switch (node.kind) {
      case NodeKind::kInput:
      case NodeKind::kConst:
        return ir::kNone;
      case NodeKind::kResult:
        return done_[node.args[0]] ? ir::kNone : id;
      case NodeKind::kCall:
        return done_[id] ? ir::kNone : id;
      case NodeKind::kView:
        return missingIn(memoryOf(graph_, id).base);
      case NodeKind::kJoin:
        for (const NodeId arg : node.args) {
          if (const NodeId missing = missingIn(arg); missing != ir::kNone) return missing;
        }
        return ir::kNone;
      default: {
        const MemoryPlace place = tensorOf(graph_, id);
        const bool made = made_.contains({place.base, place.offset}) || elementCount(node.sizes).hint == 0;
        return made ? ir::kNone : id;
      }
    }
  }

  void checkEnd() {
    for (const NodeId id : graph_.outputs) {
      if (id != ir::kNone) needTensor(kEnd, id);
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (nodes_[id].kind == NodeKind::kCall && !done_[id])
        problem(kEnd, "call " + named(id) + " is missing");
    }
  }

  const NativeProgram& program_;
  const TensorGraph& graph_;
  const std::vector<Node>& nodes_;
  std::vector<std::vector<NodeId>> parts_;  // by concatenation
  std::vector<bool> done_;                  // calls and views
  std::set<Part> made_;                     // by kernels
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> verify(const NativeProgram& program, const TensorGraph& graph) {
  return Verifier(program, graph).run();
}

void checkProgram(const NativeProgram& program, const TensorGraph& graph, const ir::Trace& trace) {
  if (!verifying()) {
    return;
  }
  const std::vector<Problem> problems = verify(program, graph);
  KINTSUGI_CHECK(problems.empty(), "the native program is not valid:\n", ir::formatProblems(problems),
                 print(program, graph, trace));
}

}  // namespace kintsugi::passes
