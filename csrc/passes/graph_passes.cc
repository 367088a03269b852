#include "passes/graph_passes.h"

#include <string>

#include "passes/drop_round_trips.h"
#include "passes/find_attention.h"
#include "passes/fold_algebra.h"
#include "passes/graph_text.h"
#include "passes/graph_verifier.h"
#include "passes/move_reshapes.h"
#include "passes/named_pass.h"
#include "passes/order_writes.h"
#include "passes/pass_log.h"
#include "passes/place_parts.h"
#include "passes/simplify_graph.h"

namespace kintsugi::passes {

namespace {

constexpr GraphPass kPasses[] = {
    {"drop-round-trips", [](GraphPassUnit& unit) { dropRoundTrips(unit.graph); }},
    {"drop-copies", [](GraphPassUnit& unit) { dropCopies(unit.graph); }},
    {"merge-equal", [](GraphPassUnit& unit) { mergeEqualNodes(unit.graph); }},
    {"fold-algebra", [](GraphPassUnit& unit) { foldAlgebra(unit.graph, unit.options.contract); }},
    {"move-reshapes", [](GraphPassUnit& unit) { moveReshapes(unit.graph); }},
    {"drop-unused", [](GraphPassUnit& unit) { dropUnusedNodes(unit.graph); }},
    {"find-attention", [](GraphPassUnit& unit) { findAttention(unit.graph, unit.segment); }},
    {"place-parts", [](GraphPassUnit& unit) { placeParts(unit.graph); }},
    {"place-writes", [](GraphPassUnit& unit) { placeWrites(unit.graph); }},
};

struct PipelineRow {
  std::string_view name;
  bool GraphPassOptions::*onlyIf = nullptr;
};
// What went to a wider type and back is a copy. Reshapes that moved leave equal nodes behind. Attention takes
// nodes that the rest of the program computed.
constexpr PipelineRow kPipeline[] = {
    {"drop-round-trips"},
    {"drop-copies"},
    {"merge-equal"},
    {"fold-algebra"},
    {"move-reshapes"},
    {"merge-equal"},
    {"drop-unused"},
    {"find-attention", &GraphPassOptions::attention},
    {"drop-unused", &GraphPassOptions::attention},
    {"place-parts"},
    {"place-writes"},
};

}  // namespace

std::span<const GraphPass> graphPasses() { return kPasses; }

const GraphPass* findGraphPass(std::string_view name) { return findNamed<GraphPass>(kPasses, name); }

void runGraphPasses(GraphPassUnit unit, std::span<const GraphPass* const> passes) {
  PassLog log(unit.segment, [&unit] { return print(unit.graph, unit.segment); });
  log.begin("tensor graph");
  checkGraph(unit.graph, unit.segment, "decomposition");
  for (const GraphPass* pass : passes) {
    log.run(
        "graph", pass->name, [&unit] { return unit.graph.nodes.size(); }, [&] { pass->run(unit); });
    checkGraph(unit.graph, unit.segment, pass->name);
  }
}

void simplify(TensorGraph& graph, const ir::Trace& segment, const GraphPassOptions& options) {
  std::vector<const GraphPass*> passes;
  for (const PipelineRow& row : kPipeline) {
    if (row.onlyIf == nullptr || options.*row.onlyIf) {
      passes.push_back(findGraphPass(row.name));
    }
  }
  runGraphPasses({graph, segment, options}, passes);
}

}  // namespace kintsugi::passes
