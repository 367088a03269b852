#include "driver/native_training.h"

#include <algorithm>

#include "driver/fx_segments.h"
#include "ir/dtype.h"
#include "ir/segments.h"
#include "passes/free_gradients.h"
#include "passes/pass_log.h"
#include "passes/result_versions.h"
#include "passes/segment_passes.h"
#include "passes/split_gradients.h"
#include "torchapi/eager_traits.h"

namespace kintsugi::driver {

namespace {

using passes::TrainingSegments;
using runtime::NativePlan;

// The inputs of a segment by their kinds alone: the training runner checks the rest.
std::vector<NativePlan::Input> inputsOf(const ir::Trace& segment) {
  std::vector<ir::ValueId> values;
  ir::collectValues(segment, segment.operandsOf(segment.code.front()), values);
  std::vector<NativePlan::Input> inputs;
  for (const ir::ValueId value : values) {
    NativePlan::Input input;
    input.kind = torchapi::kindOfType(segment.values[value].kind);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::unique_ptr<NativePlan> build(const ir::Trace& segment, bool callsOnly, bool contract,
                                  NativeSummary& summary, std::string& reason) {
  passes::checkSegment(segment, "as differentiating has made it");
  NativeSegmentInfo info;
  info.segment = segment;
  for (ir::TensorDesc& meta : info.segment.metas) meta.hints = {};  // sizes that vary are not for training
  info.contract = contract;
  info.inputs = inputsOf(segment);
  info.callsOnly = callsOnly;
  info.restride = !callsOnly;
  info.needsKernels = false;
  info.versions = passes::resultVersions(segment);
  NativeSummary part;
  std::unique_ptr<NativePlan> plan = buildNativePlan(info, part, reason);
  if (plan != nullptr) {
    // The runner takes care of the grad mode.
    plan->gradOutside = plan->gradOn = plan->inputsRequireGrad = false;
    summary.kernels += part.kernels;
    summary.calls += part.calls;
    summary.products += part.products;
  }
  return plan;
}

// Does it run operators with autograd? Then it does what autograd does, in a graph of their own.
bool isTaped(const NativePlan& plan) {
  return std::ranges::any_of(plan.calls, [](const auto& call) { return call.taped != nullptr; });
}

passes::GradientOptions gradientOptions() {
  return {.traits = operatorTraits, .clamps = torchapi::clampGradients()};
}

}  // namespace

std::optional<runtime::TrainingPlans> buildTrainingPlans(const NativeSegmentInfo& info,
                                                         NativeSummary& summary, std::string& reason) {
  if (info.strict) {
    reason = "training bit by bit as in eager mode";
    return std::nullopt;
  }
  std::optional<passes::GradientGraph> graph;
  passes::PassLog(info.segment, [&] { return graph ? passes::print(*graph) : std::string(); })
      .run(
          "segment", "differentiate",
          [&] { return graph ? graph->forward.size() + graph->backward.size() : info.segment.code.size(); },
          [&] { graph = passes::differentiate(info.segment, gradientOptions(), reason); });
  if (graph && graph->outputs.empty()) {
    summary.plain = true;
    summary.instructions = graph->forward.size();
    return std::nullopt;
  }
  if (!graph) {
    return std::nullopt;
  }
  TrainingSegments parts;
  passes::PassLog(info.segment, [&] { return passes::print(parts); })
      .run(
          "segment", "split-gradients",
          [&] {
            const size_t made = parts.forward.code.size() + parts.backward.code.size();
            return made != 0 ? made : graph->forward.size() + graph->backward.size();
          },
          [&] { parts = passes::splitGradients(*graph); });
  runtime::TrainingPlans plans;
  NativeSummary others;
  plans.forward = build(parts.forward, false, info.contract, summary, reason);
  plans.backward =
      plans.forward != nullptr ? build(parts.backward, false, info.contract, summary, reason) : nullptr;
  plans.recompute =
      plans.backward != nullptr ? build(graph->recompute, true, false, others, reason) : nullptr;
  summary.instructions = graph->forward.size();
  plans.form = {parts.form};
  plans.results = parts.results;
  for (const passes::InputStore& store : graph->stores) {
    plans.stores.push_back({store.input, store.output, store.times});
    plans.form.written.push_back(store.input);
  }
  using From = ir::SegmentPlace::From;
  for (const ir::SegmentPlace& result : plans.results) {
    plans.epilogueCount += result.from == From::kOwn ? 1 : 0;
  }
  if (plans.recompute != nullptr && plans.epilogueCount != 0) {
    plans.epilogue = build(parts.epilogue, true, false, others, reason);
  }
  auto left = plans.recompute != nullptr ? passes::freeGradients(*graph, parts.form.gets) : std::nullopt;
  if (left) {
    plans.free = build(left->segment, true, false, others, reason);
    plans.freeInputs = std::move(left->inputs);
    plans.freeLeaves = std::move(left->leaves);
  }
  if (plans.recompute == nullptr || (plans.epilogueCount != 0 && plans.epilogue == nullptr)) {
    return std::nullopt;
  }
  summary.plain =
      summary.kernels == 0 && summary.products == 0 && (isTaped(*plans.forward) || isTaped(*plans.backward));
  if (summary.plain) {
    return std::nullopt;
  }
  for (const ir::KeptForm::Kept& kept : parts.form.kept) {
    plans.ownCount += kept.place.from == From::kOwn ? 1 : 0;
  }
  std::vector<ir::ValueId> inputs;
  ir::collectValues(parts.forward, parts.forward.operandsOf(parts.forward.code.front()), inputs);
  for (size_t k = 0; k < graph->maskProbabilities.size(); ++k) {
    const ir::ValueId mask = inputs[inputs.size() - graph->maskProbabilities.size() + k];
    const ir::TensorDesc& meta = parts.forward.metas[parts.forward.values[mask].meta];
    plans.masks.push_back({meta, graph->maskProbabilities[k]});
  }
  plans.inputs = info.inputs;
  plans.gradBefore = graph->gradBefore;
  plans.gradAfter = graph->gradAfter;
  return plans;
}

}  // namespace kintsugi::driver
