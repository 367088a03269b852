// How many bytes of gradients DistributedDataParallel sends to the other processes at a time.
//
// Its module says it while its forward runs, around the recorded call or inside it. Native code gives
// gradients in groups of that size then (passes/gradient_cuts.h), so that sending and computing overlap as in
// eager mode. What is computed does not depend on it, so nothing is guarded. GIL held, no Python code runs.
#pragma once

#include "ir/segments.h"

namespace kintsugi::capture {

// Of the module whose forward is running in this process; zeros: there is none.
ir::GradientLimits activeBuckets();

}  // namespace kintsugi::capture
