// What the native backend's parts hand to each other, verified where verification is on
// (support/verification.h). Plain functions; no GIL.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/trace.h"
#include "passes/plan_verifier.h"
#include "runtime/native_plan.h"

namespace kintsugi::driver {

// What a step of a plan does with slots.
struct StepFlow {
  std::vector<uint32_t> uses;
  std::vector<uint32_t> makes;  // or writes to
};

struct PlanDescription {
  const runtime::NativePlan& plan;
  size_t inputCount = 0;
  const std::vector<StepFlow>& flows;                // by step
  const std::vector<std::vector<uint32_t>>& usedBy;  // by step: all slots that it needs to be there
  const std::vector<std::pair<uint32_t, uint32_t>>& aliases;
};

// In every build, since whatever a run reads or writes has to lie in its frame: slots, drops and the indices
// of steps are within their tables. `scalars`: instructions of scalar arithmetic.
void checkSlots(const runtime::NativePlan& plan, size_t inputCount, size_t scalars);
passes::PlanFlow flowOf(const PlanDescription& described);
void checkPlan(const PlanDescription& described, const std::function<std::string()>& graph);

}  // namespace kintsugi::driver
