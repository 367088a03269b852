// How many bytes of gradients DistributedDataParallel sends to the other processes at a time.
//
// DistributedDataParallel says which of its modules is running its forward, around the recorded call or
// inside it. Native code then delivers gradients in groups of the bucket size (passes/gradient_cuts.h), so
// that sending and computing overlap as in eager mode. The results do not depend on this, so nothing is
// guarded. GIL held, no Python code runs.
#pragma once

#include "ir/segments.h"

namespace kintsugi::capture {

// The limits of the module whose forward is running in this process; zeros if there is none.
ir::GradientLimits activeBuckets();

}  // namespace kintsugi::capture
