#include "runtime/segment_steps.h"

namespace kintsugi::runtime {

namespace {

thread_local SegmentStepsScope* innermost = nullptr;

}  // namespace

SegmentSteps* stepsOf(const SegmentRunner* runner) {
  return innermost != nullptr && innermost->runner_ == runner ? innermost->steps_ : nullptr;
}

SegmentStepsScope::SegmentStepsScope(const SegmentRunner* runner, SegmentSteps* steps)
    : runner_(runner), steps_(steps), outer_(innermost) {
  innermost = this;
}

SegmentStepsScope::~SegmentStepsScope() { innermost = outer_; }

}  // namespace kintsugi::runtime
