#include "driver/native_checks.h"

#include <algorithm>
#include <iterator>

#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/plan_text.h"
#include "passes/plan_verifier.h"
#include "support/check.h"
#include "support/verification.h"

namespace kintsugi::driver {

namespace {

using runtime::NativeMade;
using runtime::NativePlan;
using runtime::NativeStepKind;

passes::PlanStep stepOf(const PlanDescription& described, size_t at) {
  const NativePlan& plan = described.plan;
  const runtime::NativePlanStep& from = plan.steps[at];
  const std::vector<uint32_t>& makes = described.flows[at].makes;
  passes::PlanStep step;
  std::copy_if(described.usedBy[at].begin(), described.usedBy[at].end(), std::back_inserter(step.reads),
               [&](uint32_t slot) { return std::find(makes.begin(), makes.end(), slot) == makes.end(); });
  step.writes = makes;
  if (from.kind == NativeStepKind::kKernel || from.kind == NativeStepKind::kProduct) {
    const std::vector<NativeMade>& made =
        from.kind == NativeStepKind::kKernel ? plan.kernels[from.index].made : plan.products[from.index].made;
    for (const NativeMade& tensor : made) {
      step.makes.push_back({tensor.slot, tensor.place, tensor.over});
    }
  } else {
    for (const uint32_t slot : makes) {
      step.makes.push_back({slot});
    }
  }
  const auto drops = plan.drops.begin() + static_cast<std::ptrdiff_t>(from.firstDrop);
  step.drops.assign(drops, drops + static_cast<std::ptrdiff_t>(from.dropCount));
  return step;
}

}  // namespace

void checkSegment(const ir::Trace& segment, std::string_view when) {
  if (!verifying()) {
    return;
  }
  const std::vector<ir::Problem> problems = ir::verify(segment, ir::VerifierMode::kSegment);
  KINTSUGI_CHECK(problems.empty(), "a segment is not valid ", when, ":\n", ir::formatProblems(problems),
                 ir::print(segment));
}

void checkPlan(const PlanDescription& described, const std::function<std::string()>& graph) {
  if (!verifying()) {
    return;
  }
  const NativePlan& plan = described.plan;
  passes::PlanFlow flow{.slotCount = plan.slotCount,
                        .inputCount = described.inputCount,
                        .outputs = plan.outputs,
                        .aliases = described.aliases,
                        .steadySteps = plan.steadySteps,
                        .steadySlots = plan.steadySlots};
  for (const NativePlan::Written& written : plan.written) {
    flow.written.push_back(written.slot);
  }
  for (size_t at = 0; at < plan.steps.size(); ++at) {
    flow.steps.push_back(stepOf(described, at));
  }
  const std::vector<ir::Problem> problems = passes::verify(flow);
  KINTSUGI_CHECK(problems.empty(), "a native plan is not valid:\n", ir::formatProblems(problems),
                 passes::print(flow), graph());
}

}  // namespace kintsugi::driver
