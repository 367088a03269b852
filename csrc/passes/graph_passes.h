// The passes over a tensor graph, by name, and the order in which they run.
//
// A pass is a row of graph_passes.cc: a function, and the name by which file tests (`; test:
// graph-pass=drop-copies`), logs and statistics know it. Each is timed (passes/pass_statistics.h); where
// verification is on, the graph is verified before the first and after each; with KINTSUGI_LOGS=graph_passes
// the graph is printed as it comes and after each pass that changed it.
//
// Pure functions of the graph; need a SizeScope. Any thread. No GIL.
#pragma once

#include <span>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

struct GraphPassOptions {
  bool attention = true;  // what is written out as products and softmax may be one node
  bool contract = false;  // algebra that rounds otherwise is welcome
};

struct GraphPassUnit {
  TensorGraph& graph;
  const ir::Trace& segment;  // that the graph was built from
  GraphPassOptions options;
};

struct GraphPass {
  const char* name;
  void (*run)(GraphPassUnit& unit);
};

std::span<const GraphPass> graphPasses();
// nullptr: there is no pass of this name.
const GraphPass* findGraphPass(std::string_view name);

void runGraphPasses(GraphPassUnit unit, std::span<const GraphPass* const> passes);
// The default pipeline, for a graph that was just built.
void simplify(TensorGraph& graph, const ir::Trace& segment, const GraphPassOptions& options = {});

}  // namespace kintsugi::passes
