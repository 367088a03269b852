#include "passes/fuse.h"

#include <algorithm>

#include "passes/group_nodes.h"
#include "passes/make_kernel.h"
#include "passes/merge_groups.h"
#include "passes/order_steps.h"
#include "passes/order_writes.h"
#include "passes/pass_log.h"

namespace kintsugi::passes {

namespace {

class Scheduler {
 public:
  // `last`: groups that run after all else, in this order.
  Scheduler(const TensorGraph& graph, const Grouping& grouping, const std::vector<uint32_t>& last)
      : graph_(graph),
        last_(last),
        groupOf_(grouping.groupOf),
        groups_(grouping.groups),
        stored_(storedNodes(graph, grouping)),
        done_(graph.nodes.size()),
        groupDone_(groups_.size()) {}

  NativeProgram run() {
    for (const uint32_t at : last_) {
      groupDone_[at] = true;
    }
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (graph_.nodes[id].kind == NodeKind::kCall) {
        need(id);
      }
    }
    for (const NodeId id : graph_.outputs) {
      if (id != ir::kNone) {
        need(id);
      }
    }
    for (const uint32_t at : last_) {
      needArguments(at);
    }
    program_.undoable = program_.steps.size();
    for (const uint32_t at : last_) {
      addKernel(at);
    }
    return std::move(program_);
  }

 private:
  // Marks a node whose tensor has to exist in memory.
  void need(NodeId id) {
    if (done_[id]) {
      return;
    }
    const Node& node = graph_.nodes[id];
    if (isCore(node)) {
      needGroup(groupOf_[id]);
      return;
    }
    done_[id] = true;
    // These only need the memory of their arguments, not tensors.
    const bool memory = node.product || node.kind == NodeKind::kJoin;
    for (const NodeId arg : node.args) {
      need(memory ? memoryOf(graph_, arg).base : arg);
    }
    if (node.kind == NodeKind::kCall || node.kind == NodeKind::kView) {
      program_.steps.push_back({node.kind == NodeKind::kCall ? StepKind::kCall : StepKind::kView, 0, id});
    }
  }

  void needGroup(uint32_t at) {
    if (groupDone_[at]) {
      return;
    }
    groupDone_[at] = true;
    needArguments(at);
    addKernel(at);
  }

  void needArguments(uint32_t at) {
    for (const NodeId member : groups_[at].members) {
      for (const NodeId arg : graph_.nodes[member].args) {
        // Views are looked through: their memory is enough.
        const NodeId base = memoryOf(graph_, arg).base;
        if (graph_.nodes[base].kind != NodeKind::kConst && groupOf_[base] != at) {
          need(base);
        }
      }
    }
  }

  void addKernel(uint32_t at) {
    program_.steps.push_back({StepKind::kKernel, static_cast<uint32_t>(program_.kernels.size()), ir::kNone});
    program_.kernels.push_back(makeKernel(graph_, groups_[at], stored_));
  }

  const TensorGraph& graph_;
  const std::vector<uint32_t>& last_;
  const std::vector<uint32_t>& groupOf_;
  const std::vector<Group>& groups_;
  const std::vector<bool> stored_;
  std::vector<bool> done_;
  std::vector<bool> groupDone_;
  NativeProgram program_;
};

}  // namespace

NativeProgram fuse(const TensorGraph& graph, const ir::Trace& segment, bool inOrder) {
  Grouping grouping;
  const auto groupCount = [&] {
    const auto isThere = [](const Group& group) { return !group.members.empty(); };
    return static_cast<size_t>(std::ranges::count_if(grouping.groups, isThere));
  };
  PassLog groups(segment, [&] { return print(grouping); });
  groups.run("groups", "group-nodes", groupCount, [&] { grouping = groupNodes(graph); });
  groups.run("groups", "merge-groups", groupCount, [&] { mergeIsomorphic(graph, grouping); });
  std::vector<uint32_t> last;
  groups.run("groups", "last-groups", groupCount, [&] { last = lastGroups(graph, grouping); });

  NativeProgram program;
  const auto stepCount = [&] { return program.steps.size(); };
  PassLog steps(segment, [&] { return print(program, graph, segment); });
  steps.run("program", "schedule", stepCount, [&] { program = Scheduler(graph, grouping, last).run(); });
  if (!inOrder) steps.run("program", "order-steps", stepCount, [&] { orderSteps(graph, program); });
  return program;
}

}  // namespace kintsugi::passes
