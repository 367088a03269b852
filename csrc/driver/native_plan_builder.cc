#include "driver/native_plan_builder.h"

#include <algorithm>

#include "driver/fx_segments.h"
#include "driver/native_convolutions.h"
#include "driver/plan_of_graph.h"
#include "passes/build_graph.h"
#include "passes/fold_convolutions.h"
#include "passes/graph_passes.h"
#include "passes/graph_text.h"
#include "passes/order_steps.h"
#include "passes/pass_statistics.h"
#include "passes/program_verifier.h"
#include "torchapi/eager_traits.h"

namespace kintsugi::driver {

namespace {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using passes::Node;
using passes::NodeKind;
using runtime::GradSetting;
using runtime::NativePlan;

GradModes gradModesOf(const ir::Trace& segment) {
  GradModes modes;
  for (const Instruction& ins : segment.code) {
    if (ins.op == Op::kSetGrad) {
      const Operand& mode = segment.operandsOf(ins)[0];
      modes.known = modes.known && mode.kind == ir::OperandKind::kBool;
      modes.after = mode.i != 0;
    } else if (ins.op == Op::kAten) {
      modes.outside = modes.outside || !modes.after;
      modes.on = modes.on || modes.after.value_or(false);
    }
    modes.of.push_back(!modes.after ? GradSetting::kOutside
                                    : (*modes.after ? GradSetting::kOn : GradSetting::kOff));
  }
  return modes;
}

}  // namespace

std::unique_ptr<NativePlan> buildNativePlan(const NativeSegmentInfo& given, NativeSummary& summary,
                                            std::string& reason, const NativeVariant& variant) {
  const std::optional<NativeSegmentInfo> folded = withFoldedConvolutions(given);
  const NativeSegmentInfo& info = folded ? *folded : given;
  const ir::Trace& segment = info.segment;
  const GradModes modes = gradModesOf(segment);
  if (!modes.known) {
    reason = "it sets the grad mode to something that is not static";
    return nullptr;
  }
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  std::optional<passes::TensorGraph> graph;  // simplify() shows it in the log
  {
    const passes::PassTimer timer("graph", "build-graph",
                                  [&] { return graph ? graph->nodes.size() : segment.code.size(); });
    graph = passes::buildGraph(segment,
                               {.traits = operatorTraits,
                                .strict = info.strict,
                                .callsOnly = info.callsOnly,
                                .products = torchapi::hasFloatProducts(),
                                .tiles = variant.tiles,
                                .attention = variant.attention,
                                .gelu = torchapi::geluForms()},
                               reason);
  }
  if (!graph) return nullptr;
  passes::simplify(*graph, segment,
                   {.attention = variant.attention, .contract = info.contract && !info.strict});
  const passes::NativeProgram program = passes::fuse(*graph, segment, info.callsOnly);
  passes::checkProgram(program, *graph, segment);
  summary.instructions = graph->instructions;
  summary.kernels = program.kernels.size();
  summary.calls = program.steps.size() - program.kernels.size();
  summary.peak = passes::memoryUse(*graph, program).peak;
  const auto count = [&](auto&& is) {
    return static_cast<size_t>(std::count_if(graph->nodes.begin(), graph->nodes.end(), is));
  };
  summary.products = count([](const Node& node) { return node.product; });
  summary.tiled = count([](const Node& node) { return node.kind == NodeKind::kProduct; });
  summary.attention = count([](const Node& node) { return node.kind == NodeKind::kAttention; });
  summary.graph = info.autotune ? passes::print(*graph, segment) : std::string();
  if (program.kernels.empty() && summary.products == 0 && info.needsKernels) {
    summary.plain = true;
    return nullptr;
  }
  std::unique_ptr<NativePlan> plan;
  {
    const passes::PassTimer timer(
        "program", "make-plan", [&] { return plan != nullptr ? plan->steps.size() : program.steps.size(); });
    plan = planOfGraph(info, *graph, program, modes, variant.shape, reason);
  }
  if (plan != nullptr) {
    plan->minWorkPerThread =
        static_cast<int64_t>(variant.parts * static_cast<double>(plan->minWorkPerThread));
    if (!info.callsOnly) plan->versions = given.versions;
  }
  return plan;
}

}  // namespace kintsugi::driver
