#include "torchapi/profiler_range.h"

#include <ATen/record_function.h>

namespace kintsugi::torchapi {

// The dispatcher asks the same before each operation. It takes nanoseconds, whereas hasCallbacks() takes a
// lock.
bool profilerActive() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value(); }

struct ProfilerRange::Impl {
  at::RecordFunction range{at::RecordScope::USER_SCOPE};
};

ProfilerRange::ProfilerRange() = default;
ProfilerRange::~ProfilerRange() = default;

void ProfilerRange::begin(const std::string& name) {
  impl_ = std::make_unique<Impl>();
  if (impl_->range.isActive()) impl_->range.before(name, std::int64_t{-1});
}

}  // namespace kintsugi::torchapi
