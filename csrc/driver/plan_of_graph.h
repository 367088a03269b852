// From a tensor graph, and the program that fusion made of it, to the native plan: a slot for each tensor,
// compiled kernels, calls and views in order, where each tensor is dropped, and which memory is reused.
//
//   kernel: %2 = sin(%0)                 slots: %0 in 0, %2 in 1, %3 in 2
//   call:   %3 = aten.mm(%2, %1)   =>    kernel 0: reads 0, makes 1;   call 0: reads 1, makes 2, drops 1
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

// Null, with a reason, if the segment is to be replayed instead. `tiles`: the shape of tiles that kernels are
// compiled with. The graph may have been made without a segment, if it has no calls.
std::unique_ptr<runtime::NativePlan> planOfGraph(const NativeSegmentInfo& info,
                                                 const passes::TensorGraph& graph,
                                                 const passes::NativeProgram& program, const GradModes& modes,
                                                 unsigned tiles, std::string& reason);

}  // namespace kintsugi::driver
