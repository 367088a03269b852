// From a tensor graph, and the program that fusion made of it, to the native plan: slots, kernels compiled,
// calls and views in order, what is dropped when, whose memory is used again.
//
// Pure function of its arguments (and of torch's operators); needs a SizeScope, no GIL, and may run on any
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/native_plan_builder.h"
#include "passes/fuse.h"

namespace kintsugi::driver {

// The grad modes that the operators of a segment run in.
struct GradModes {
  bool known = true;
  std::vector<runtime::GradSetting> of;  // by instruction
  bool outside = false;                  // some operator runs in the mode that the segment starts in
  bool on = false;                       // some operator runs with the mode on, whatever it is outside
  std::optional<bool> after;             // what the segment leaves
};

// Null, with a reason, where the segment stays with replay. `tiles`: which shape of tiles kernels are
// compiled with. The graph may have been made without a segment, if it has no calls.
std::unique_ptr<runtime::NativePlan> planOfGraph(const NativeSegmentInfo& info,
                                                 const passes::TensorGraph& graph,
                                                 const passes::NativeProgram& program, const GradModes& modes,
                                                 unsigned tiles, std::string& reason);

}  // namespace kintsugi::driver
