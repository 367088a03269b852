#include "passes/program_verifier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "passes/graph_text.h"

namespace kintsugi::passes {
namespace {

// A call between two kernels, a view for it, and a write to an input.
TensorGraph base() {
  TensorGraph graph;
  const auto add = [&graph](NodeKind kind, std::vector<Size> sizes, std::vector<NodeId> args) {
    Node node;
    node.kind = kind;
    node.elem = kind == NodeKind::kCall ? Elem::kOther : Elem::kF32;
    node.sizes = std::move(sizes);
    node.strides.assign(node.sizes.size(), 1);
    if (node.sizes.size() == 2) node.strides = {8, 1};
    node.args = std::move(args);
    return graph.add(std::move(node));
  };
  const NodeId x = add(NodeKind::kInput, {4, 8}, {});
  const NodeId twice = add(NodeKind::kPoint, {4, 8}, {x, x});
  const NodeId view = add(NodeKind::kView, {2, 8}, {twice});
  const NodeId call = add(NodeKind::kCall, {}, {view});
  graph.nodes[call].instruction = 0;
  const NodeId result = add(NodeKind::kResult, {2, 8}, {call});
  const NodeId sum = add(NodeKind::kPoint, {2, 8}, {result, result});
  const NodeId write = add(NodeKind::kPoint, {4, 8}, {twice, x});
  graph.nodes[write].home = x;
  graph.nodes[write].write = true;
  graph.inputs = {x};
  graph.outputs = {sum, write};
  graph.written = {{0, 1}};
  graph.writes = {{}};
  graph.writes[0].sizes = {4, 8};
  graph.writes[0].strides = {8, 1};
  graph.writes[0].elem = Elem::kF32;
  return graph;
}

std::string problemsAfter(const std::function<void(NativeProgram&)>& change) {
  SizeTable sizes;
  const SizeScope scope(sizes);
  const TensorGraph graph = base();
  NativeProgram program = fuse(graph, ir::Trace());
  change(program);
  return ir::formatProblems(verify(program, graph));
}

size_t first(const NativeProgram& program, StepKind kind) {
  const auto is = [kind](const NativeStep& step) { return step.kind == kind; };
  return static_cast<size_t>(std::ranges::find_if(program.steps, is) - program.steps.begin());
}

TEST(ProgramVerifier, AcceptsWhatFusionMakes) {
  EXPECT_EQ(problemsAfter([](NativeProgram& program) { EXPECT_EQ(program.kernels.size(), 3u); }), "");
}

struct Broken {
  const char* says;
  std::function<void(NativeProgram&)> change;
};

TEST(ProgramVerifier, RejectsWhatBreaksARule) {
  const Broken table[] = {
      {"runs what is not there", [](NativeProgram& p) { p.steps[0].kernel = 9; }},
      {"kernel 0 is run by 2", [](NativeProgram& p) { p.steps.push_back(p.steps[0]); }},
      {"kernel 0 is run by 0", [](NativeProgram& p) { p.steps.erase(p.steps.begin()); }},
      {"reads n1 before it is made", [](NativeProgram& p) { std::swap(p.steps[0], p.steps[1]); }},
      {"takes view n2 before it is made",
       [](NativeProgram& p) {
         p.steps.erase(p.steps.begin() + static_cast<long>(first(p, StepKind::kView)));
       }},
      {"reads n4 before it is made",
       [](NativeProgram& p) {
         p.steps.erase(p.steps.begin() + static_cast<long>(first(p, StepKind::kCall)));
       }},
      {"call n3 is missing",
       [](NativeProgram& p) {
         p.steps.erase(p.steps.begin() + static_cast<long>(first(p, StepKind::kCall)));
       }},
      {"n3 a second time", [](NativeProgram& p) { p.steps.push_back(p.steps[first(p, StepKind::kCall)]); }},
      {"n3 is of another kind", [](NativeProgram& p) { p.steps[first(p, StepKind::kView)].node = 3; }},
      {"stores to input n0", [](NativeProgram& p) { p.undoable = p.steps.size(); }},
      {"more steps can be undone", [](NativeProgram& p) { p.undoable = p.steps.size() + 1; }},
      {"stores to n1 again",
       [](NativeProgram& p) {
         p.kernels.push_back(p.kernels[0]);
         p.steps.push_back({StepKind::kKernel, static_cast<uint32_t>(p.kernels.size() - 1), ir::kNone});
       }},
      {"has no such memory", [](NativeProgram& p) { p.kernels[0].accesses[0].node = 99; }},
  };
  for (const Broken& row : table) {
    EXPECT_NE(problemsAfter(row.change).find(row.says), std::string::npos) << row.says << " is not in:\n"
                                                                           << problemsAfter(row.change);
  }
}

}  // namespace
}  // namespace kintsugi::passes
