// Which tensors of a plan keep their memory between runs, and which share it.
//
// Pure function of the plan; any thread, no GIL.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/native_plan.h"

namespace kintsugi::driver {

// `usedBy`: by step, the slots that it makes or reads. `aliases`: pairs of slots, of which the second may be
// a view of the first. `all`: large tensors keep their memory, too.
void keepPlaces(runtime::NativePlan& plan, const std::vector<std::vector<uint32_t>>& usedBy,
                const std::vector<std::pair<uint32_t, uint32_t>>& aliases, bool all);

}  // namespace kintsugi::driver
