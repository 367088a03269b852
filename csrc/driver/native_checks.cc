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

void checkSlot(const NativePlan& plan, uint32_t slot, const char* what) {
  KINTSUGI_CHECK(slot < plan.slotCount, what, " slot ", slot, " of ", plan.slotCount);
}

void checkKernel(const NativePlan& plan, const runtime::NativeKernel& kernel) {
  KINTSUGI_CHECK(kernel.function != nullptr, "a kernel without code");
  for (const runtime::NativeMemory& memory : kernel.memory) checkSlot(plan, memory.slot, "a kernel works in");
  for (const uint32_t at : kernel.values) {
    KINTSUGI_CHECK(at < kernel.memory.size(), "number ", at, " of ", kernel.memory.size(), " addresses");
  }
  for (const NativeMade& made : kernel.made) checkSlot(plan, made.slot, "a kernel makes");
  for (const runtime::NativePatch& patch : kernel.patches) {
    KINTSUGI_CHECK(patch.at < kernel.numbers.size() && patch.from < plan.sizeCount, "number ", patch.at,
                   " varies with size ", patch.from, " of ", plan.sizeCount);
  }
}

// How many there are of what steps of a kind run.
size_t countOf(const NativePlan& plan, NativeStepKind kind, size_t scalars) {
  switch (kind) {
    case NativeStepKind::kKernel:
      return plan.kernels.size();
    case NativeStepKind::kCall:
      return plan.calls.size();
    case NativeStepKind::kView:
      return plan.views.size();
    case NativeStepKind::kProduct:
      return plan.products.size();
    case NativeStepKind::kNumber:
      return plan.values.size();
    case NativeStepKind::kRead:
      return plan.reads.size();
    case NativeStepKind::kScalar:
      return scalars;
  }
  KINTSUGI_UNREACHABLE("a step of kind ", static_cast<int>(kind));
}

}  // namespace

void checkSlots(const NativePlan& plan, size_t inputCount, size_t scalars) {
  KINTSUGI_CHECK(inputCount <= plan.slotCount, inputCount, " inputs in ", plan.slotCount, " slots");
  for (const uint32_t slot : plan.outputs) {
    if (slot != ir::kNone) checkSlot(plan, slot, "an output is in");
  }
  for (const uint32_t slot : plan.drops) checkSlot(plan, slot, "a step drops");
  for (const uint32_t slot : plan.steadySlots) checkSlot(plan, slot, "a frame keeps");
  for (const NativePlan::Written& written : plan.written) {
    KINTSUGI_CHECK(written.slot < inputCount, "slot ", written.slot, " is written to and no input");
  }
  for (const runtime::NativeKernel& kernel : plan.kernels) checkKernel(plan, kernel);
  for (const runtime::NativeView& view : plan.views) {
    checkSlot(plan, view.from, "a view is of");
    checkSlot(plan, view.to, "a view is in");
  }
  for (const runtime::NativePlanStep& step : plan.steps) {
    KINTSUGI_CHECK(step.firstDrop + size_t{step.dropCount} <= plan.drops.size(), "a step drops ",
                   step.firstDrop, " and ", step.dropCount, " more of ", plan.drops.size());
    KINTSUGI_CHECK(step.index < countOf(plan, step.kind, scalars), "a step runs ", step.index, " of ",
                   countOf(plan, step.kind, scalars));
  }
}

passes::PlanFlow flowOf(const PlanDescription& described) {
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
  return flow;
}

void checkPlan(const PlanDescription& described, const std::function<std::string()>& graph) {
  if (!verifying()) {
    return;
  }
  const passes::PlanFlow flow = flowOf(described);
  const std::vector<ir::Problem> problems = passes::verify(flow);
  KINTSUGI_CHECK(problems.empty(), "a native plan is not valid:\n", ir::formatProblems(problems),
                 passes::print(flow), graph());
}

}  // namespace kintsugi::driver
