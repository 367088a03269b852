// The native plans of a segment that autograd differentiates: the forward, the backward, the epilogue
// (results that are made after the autograd node), and the segment as it was recorded, for gradients of
// gradients.
//
// Pure function of its arguments (and of torch's operators); needs no GIL and may run on any thread.
#pragma once

#include <optional>
#include <string>

#include "driver/native_plan_builder.h"
#include "runtime/training_runner.h"

namespace kintsugi::driver {

// Nothing, with a reason, if the segment is to be replayed instead.
std::optional<runtime::TrainingPlans> buildTrainingPlans(const NativeSegmentInfo& info,
                                                         NativeSummary& summary, std::string& reason);

}  // namespace kintsugi::driver
