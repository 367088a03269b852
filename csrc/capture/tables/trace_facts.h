// Facts about a trace as a whole, for whoever keeps it.
//
// Plain data; owned by the Recorder until its result takes it over. Example: facts.bound = "it makes a class"
#pragma once

#include "ir/trace.h"

namespace kintsugi::capture {

struct TraceFacts {
  const char* bound = "";        // what the trace knows that holds in this process alone; empty: nothing
  ir::GradientLimits gradients;  // in what groups they are wanted (gradient_buckets.h)
};

}  // namespace kintsugi::capture
