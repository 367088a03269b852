// The text form of a tensor graph (passes/tensor_graph.h): one form, for people, logs, file tests and the
// parser.
//
//   graph {
//     size s0 = 10
//     inputs %0
//     %0 = input f32[s0,64] open value=0
//     %1 = reduce.sum(%0) f32[s0,1] last=1
//     %2 = const 0.015625 f32
//     %3 = mul(%1, %2) f32[s0,1] value=2
//     %4 = call aten.mm.default(%3, %0) at=3
//     %5 = result 0(%4) f32[s0,64] fresh value=4
//     outputs %5
//   }
//
// A graph is read together with the segment that it was made from, whose text comes before it where there are
// calls: `at` is an instruction of it, `value` one of its values. Everything that a graph holds is in its
// text, so two of them are the same where their texts are, and what is printed reads back as the same graph.
// Strides are left out where they are those of a contiguous tensor. What is read is well-formed text, not yet
// a valid graph: that is the verifier's business (passes/graph_verifier.h).
//
// Both ways need a SizeScope; reading one without symbols. No state, no GIL.
#pragma once

#include <string>
#include <string_view>

#include "diag/diagnostic.h"
#include "ir/trace.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

std::string print(const TensorGraph& graph, const ir::Trace& segment);

struct GraphDocument {
  ir::Trace segment;
  TensorGraph graph;
};
std::string print(const GraphDocument& document);
diag::Result<GraphDocument> parseGraph(std::string_view text);

}  // namespace kintsugi::passes
