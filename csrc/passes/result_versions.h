// What version counters say of the results of a segment: native code makes own tensors in their last state,
// views of inputs before it writes to these, and counts nothing in between.
//
// Pure function, no GIL.
#pragma once

#include <vector>

#include "ir/result_version.h"
#include "ir/trace.h"

namespace kintsugi::passes {

// Those that differ from what native code gives out. `segment` as it was recorded, with all of its writes.
std::vector<ir::ResultVersion> resultVersions(const ir::Trace& segment);

}  // namespace kintsugi::passes
