// Facts about a trace as a whole, for whoever keeps it.
//
// Plain data; owned by the Recorder until its result takes it over. Example: facts.bound = "it makes a class"
#pragma once

#include "ir/segments.h"

namespace kintsugi::capture {

struct TraceFacts {
  const char* bound = "";        // why the trace is only valid in this process; empty: no reason
  ir::GradientLimits gradients;  // in which groups gradients are reduced (gradient_buckets.h)
};

}  // namespace kintsugi::capture
