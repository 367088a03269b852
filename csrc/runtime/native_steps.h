// Runs the steps of a native plan: kernels and products on the plan's device, calls of operators, views,
// numbers.
//
//   frame.values = ...;              // the inputs, in the first slots
//   if (!runSteps(plan, frame)) ...  // declined: nothing outside of the frame has been written to
//
// Ownership: what the steps make is in the frame, which the caller frees. Threads: one for each frame. GIL:
// not needed. An exception of an operator, or of a kernel that can't get memory, leaves as a C++ exception.
#pragma once

#include "runtime/native_frame.h"

namespace kintsugi::runtime {

// False: sizes, numbers or indices are others than the plan's, or an operator has raised. A frame that has
// run its steady steps before begins behind them.
bool runSteps(const NativePlan& plan, NativeFrame& frame);

}  // namespace kintsugi::runtime
