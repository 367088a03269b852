// Schedules kernels, calls and views so that the peak of memory is low.
//
//   kernel: a of x                              kernel: a of x
//   call:   y of z                     =>       kernel: s, a sum, of a       a is dropped here
//   kernel: s, a sum, of a                      call:   y of z
//
// Idea: fusion puts a kernel where its result is first needed. A step that frees more memory than it takes (a
// reduction of a large tensor that dies there) runs as early as it can instead, while what it reads is in the
// cache; among several, the one that frees most. Three more orders are tried: the program's own, and both
// with steps that only take memory delayed until something waits for them. The order changes only if that
// lowers the peak, or keeps it and shortens the distance from where tensors are made to where they are read.
// A kernel that may overwrite its dying operand takes no memory. Calls keep their order, except calls that
// only make new tensors. Where sizes are read from results of calls, nothing moves. Deterministic; no GIL.
#pragma once

#include "passes/fuse.h"

namespace kintsugi::passes {

void orderSteps(const TensorGraph& graph, NativeProgram& program);

// Bytes of tensors that the program makes: the most at once; and between where each is made and where it is
// read, all that is made or read, summed up.
struct MemoryUse {
  int64_t peak = 0;
  int64_t distance = 0;
};
MemoryUse memoryUse(const TensorGraph& graph, const NativeProgram& program);

}  // namespace kintsugi::passes
