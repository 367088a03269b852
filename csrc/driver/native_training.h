// The native plans of a segment that autograd follows: forward, backward, and what follows.
//
// Pure function of its arguments (and of torch's operators); needs no GIL and may run on any thread.
#pragma once

#include <optional>
#include <string>

#include "driver/native_plan_builder.h"
#include "runtime/training_runner.h"

namespace kintsugi::driver {

// Nothing, with a reason, where the segment stays with replay.
std::optional<runtime::TrainingPlans> buildTrainingPlans(const NativeSegmentInfo& info,
                                                         NativeSummary& summary, std::string& reason);

}  // namespace kintsugi::driver
