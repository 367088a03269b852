// A segment's native plan: tensor graph, passes, kernels, and what runs them.
//
// Pure function of its arguments (and of torch's operators); needs no GIL and may run on any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/trace.h"
#include "runtime/native_plan.h"

namespace kintsugi::driver {

struct NativeSummary {
  size_t instructions = 0;  // operators of the segment
  size_t kernels = 0;
  size_t calls = 0;
};

// `segment`: made by passes::extractSegment, with all strides written out. `inputs`: what each input is.
// Null, with a reason, where the segment stays with replay.
std::unique_ptr<runtime::NativePlan> buildNativePlan(const ir::Trace& segment,
                                                     const std::vector<torchapi::TensorInfo>& inputs,
                                                     bool strict, NativeSummary& summary,
                                                     std::string& reason);

}  // namespace kintsugi::driver
