// The version counters that results of a segment have in eager mode. Native code does not count: it makes
// each tensor of its own with its last content (version 0), and views of inputs before it writes to the
// inputs.
//
//   %1 = aten.sin.default %0
//   %2 = aten.add_.Tensor %1, 1        a result with version 1 in eager mode
//
// Pure function, no GIL.
#pragma once

#include <vector>

#include "ir/result_version.h"
#include "ir/trace.h"

namespace kintsugi::passes {

// The results whose version differs from that which native code gives them. `segment` is given as it was
// recorded, with all of its writes.
std::vector<ir::ResultVersion> resultVersions(const ir::Trace& segment);

}  // namespace kintsugi::passes
