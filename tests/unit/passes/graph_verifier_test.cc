#include "passes/graph_verifier.h"

#include <gtest/gtest.h>

#include <functional>

namespace kintsugi::passes {
namespace {

Node node(NodeKind kind, Elem elem, std::vector<Size> sizes, std::vector<NodeId> args = {}) {
  Node made;
  made.kind = kind;
  made.elem = elem;
  made.strides = kind == NodeKind::kConst ? std::vector<Size>() : contiguousStrides(sizes);
  made.sizes = std::move(sizes);
  made.args = std::move(args);
  return made;
}

Node point(Core op, Elem elem, std::vector<Size> sizes, std::vector<NodeId> args) {
  Node made = node(NodeKind::kPoint, elem, std::move(sizes), std::move(args));
  made.op = op;
  return made;
}

// Numbers of the nodes below.
enum : NodeId {
  kX,
  kY,
  kTwo,
  kMul,
  kLess,
  kSelect,
  kSum,
  kView,
  kCopy,
  kJoin,
  kCall,
  kResult,
  kWrite,
  kPlaces,
  kTake
};

// One node of each kind but products and attention; %7 looks at %3, %8 lies in %9.
TensorGraph base() {
  TensorGraph graph;
  graph.add(node(NodeKind::kInput, Elem::kF32, {4, 8}));
  graph.add(node(NodeKind::kInput, Elem::kF32, {8}));
  graph.add(node(NodeKind::kConst, Elem::kF32, {}));
  graph.add(point(Core::kMul, Elem::kF32, {4, 8}, {kX, kY}));
  graph.add(point(Core::kLt, Elem::kBool, {4, 8}, {kMul, kTwo}));
  graph.add(point(Core::kSelect, Elem::kF32, {4, 8}, {kLess, kMul, kX}));
  Node sum = node(NodeKind::kReduce, Elem::kF32, {4, 1}, {kSelect});
  sum.op = Core::kReduceSum;
  sum.reduced = 1;
  graph.add(sum);
  Node view = node(NodeKind::kView, Elem::kF32, {2, 8}, {kMul});
  view.offset = 16;
  graph.add(view);
  Node copy = point(Core::kCast, Elem::kF32, {4, 8}, {kSelect});
  copy.home = kJoin;
  copy.offset = 1;
  copy.strides = {9, 1};
  graph.add(copy);
  Node join = node(NodeKind::kJoin, Elem::kF32, {4, 9}, {kSum, kCopy});
  join.dim = 1;
  graph.add(join);
  Node call = node(NodeKind::kCall, Elem::kOther, {}, {kJoin});
  call.instruction = 0;
  graph.add(call);
  graph.add(node(NodeKind::kResult, Elem::kF32, {4}, {kCall}));
  Node write = point(Core::kCast, Elem::kF32, {8}, {kTwo});
  write.home = kY;
  write.write = true;
  graph.add(write);
  graph.add(node(NodeKind::kInput, Elem::kI64, {3}));
  graph.add(point(Core::kTake, Elem::kF32, {3}, {kView, kPlaces}));
  graph.inputs = {kX, kY, kPlaces};
  graph.outputs = {kResult, ir::kNone, kTake};
  graph.written = {{1, 1}};
  return graph;
}

ir::Trace segment() {
  ir::Trace trace;
  const ir::Type tensor{ir::TypeKind::kTensor, ir::kNone};
  trace.append(ir::Op::kAten, {}, {&tensor, 1});
  return trace;
}

std::string problemsAfter(const std::function<void(TensorGraph&)>& change) {
  TensorGraph graph = base();
  change(graph);
  return ir::formatProblems(verify(graph, segment()));
}

// Rows 1 to `high` of a view that begins one row before its memory of four rows.
void addPart(TensorGraph& graph, int64_t high) {
  Node view = node(NodeKind::kView, Elem::kF32, {6, 8}, {kMul});
  view.strides = {8, 1};
  view.offset = -8;
  const NodeId id = graph.add(view);
  Node part = point(Core::kPart, Elem::kF32, {6, 8}, {id, kTwo});
  part.bounds = {{0, 1, high}};
  graph.add(part);
}

TEST(GraphVerifier, AcceptsTheBase) {
  EXPECT_EQ(problemsAfter([](TensorGraph&) {}), "");
  EXPECT_EQ(problemsAfter([](TensorGraph& g) { addPart(g, 5); }), "");
}

struct Broken {
  const char* says;  // part of the only rule's message
  std::function<void(TensorGraph&)> change;
};

TEST(GraphVerifier, RejectsWhatBreaksARule) {
  const Broken table[] = {
      {"%3: uses %5 before it is defined", [](TensorGraph& g) { g.nodes[kMul].args[1] = kSelect; }},
      {"%3: uses %3 before it is defined", [](TensorGraph& g) { g.nodes[kMul].args[1] = kMul; }},
      {"its home %99 is no node", [](TensorGraph& g) { g.nodes[kCopy].home = 99; }},
      {"the input %3 is none", [](TensorGraph& g) { g.inputs[1] = kMul; }},
      {"%1: is listed 0 times among the inputs",
       [](TensorGraph& g) { g.inputs.erase(g.inputs.begin() + 1); }},
      {"%0: is listed 2 times among the inputs", [](TensorGraph& g) { g.inputs.push_back(kX); }},
      {"the output %99 is no node", [](TensorGraph& g) { g.outputs[0] = 99; }},
      {"%10: a call is no output", [](TensorGraph& g) { g.outputs[0] = kCall; }},
      {"a write to input 9",
       [](TensorGraph& g) {
         g.writes.push_back({{}, 9});
       }},
      {"more writes than outputs", [](TensorGraph& g) { g.writes.resize(5); }},
      {"the input 1 is not written to", [](TensorGraph& g) { g.written[0].second = 0; }},
      {"%3: takes 2 arguments, has 1", [](TensorGraph& g) { g.nodes[kMul].args.pop_back(); }},
      {"%2: takes 0 arguments, has 1", [](TensorGraph& g) { g.nodes[kTwo].args = {kX}; }},
      {"%6: takes 1 arguments, has 2", [](TensorGraph& g) { g.nodes[kSum].args.push_back(kX); }},
      {"%3: its operation is not pointwise", [](TensorGraph& g) { g.nodes[kMul].op = Core::kReduceMax; }},
      {"%6: its operation does not reduce", [](TensorGraph& g) { g.nodes[kSum].op = Core::kAdd; }},
      {"%9: joins nothing", [](TensorGraph& g) { g.nodes[kJoin].args.clear(); }},
      {"uses the call %10, which is no value", [](TensorGraph& g) { g.nodes[kWrite].args[0] = kCall; }},
      {"%10: is no instruction of the segment", [](TensorGraph& g) { g.nodes[kCall].instruction = 7; }},
      {"%11: is the result of %9, which is no call",
       [](TensorGraph& g) { g.nodes[kResult].args[0] = kJoin; }},
      {"%11: the call has no result 1", [](TensorGraph& g) { g.nodes[kResult].result = 1; }},
      {"%3: %1 is of other sizes", [](TensorGraph& g) { g.nodes[kY].sizes = {7}; }},
      {"%3: %1 is of another type", [](TensorGraph& g) { g.nodes[kY].elem = Elem::kF64; }},
      {"%4: a comparison gives truth values", [](TensorGraph& g) { g.nodes[kLess].elem = Elem::kF32; }},
      {"%5: selects by %4, which are no truth values",
       [](TensorGraph& g) { g.nodes[kLess].elem = Elem::kI8; }},
      {"%14: looks up at %13, which are no indices",
       [](TensorGraph& g) { g.nodes[kPlaces].elem = Elem::kF32; }},
      {"%6: the result is of another type", [](TensorGraph& g) { g.nodes[kSum].op = Core::kReduceArgMax; }},
      {"%6: reduces dimensions that %5 does not have", [](TensorGraph& g) { g.nodes[kSum].reduced = 3; }},
      {"%6: dimension 1 has another size", [](TensorGraph& g) { g.nodes[kSum].trailing = 1; }},
      {"%9: joins along a dimension", [](TensorGraph& g) { g.nodes[kJoin].dim = 2; }},
      {"%9: its arguments do not add up",
       [](TensorGraph& g) {
         g.nodes[kJoin].args = {kSum, kSum, kCopy};
       }},
      {"%9: %6 is of other sizes", [](TensorGraph& g) { g.nodes[kJoin].dim = 0; }},
      {"%7: looks at elements of another type", [](TensorGraph& g) { g.nodes[kView].elem = Elem::kI32; }},
      {"%2: a number has no sizes", [](TensorGraph& g) { g.nodes[kTwo].sizes = {1}; }},
      {"%3: 2 sizes and 1 strides", [](TensorGraph& g) { g.nodes[kMul].strides.pop_back(); }},
      {"%7: views %3 beyond its end", [](TensorGraph& g) { g.nodes[kView].offset = 17; }},
      {"%7: views %3 beyond its end", [](TensorGraph& g) { g.nodes[kView].offset = -1; }},
      {"%16: reads %3 beyond its end", [](TensorGraph& g) { addPart(g, 6); }},
      {"%8: lies in %9 beyond its end", [](TensorGraph& g) { g.nodes[kCopy].offset = 2; }},
      {"%8: its home %6 is no concatenation after it", [](TensorGraph& g) { g.nodes[kCopy].home = kSum; }},
      {"%5: its home %9 does not join it", [](TensorGraph& g) { g.nodes[kSelect].home = kJoin; }},
      {"reads %12, which is stored to an input", [](TensorGraph& g) { g.nodes[kTake].args[0] = kWrite; }},
      {"%12: is stored to what is no input", [](TensorGraph& g) { g.nodes[kWrite].home = kMul; }},
      {"%12: is stored to an input of another type",
       [](TensorGraph& g) { g.nodes[kWrite].elem = Elem::kI32; }},
      {"%12: is stored to %1, which is not said to be written to", [](TensorGraph& g) { g.written.clear(); }},
  };
  for (const Broken& broken : table) {
    const std::string problems = problemsAfter(broken.change);
    EXPECT_NE(problems.find(broken.says), std::string::npos) << broken.says << "\n" << problems;
  }
}

}  // namespace
}  // namespace kintsugi::passes
