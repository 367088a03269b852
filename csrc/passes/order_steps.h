// The order in which kernels, calls and views run, such that little memory is taken at once.
//
//   kernel: a of x                              kernel: a of x
//   call:   y of z                     =>       kernel: s, a sum, of a       a is dropped here
//   kernel: s, a sum, of a                      call:   y of z
//
// Idea: fusion puts a kernel where something first needs it. What leaves less memory taken than there was (a
// large tensor goes, a small one comes) runs as soon as it can instead, while what it reads is in the cache;
// of several, what frees most. The order of the program is tried as well: of two branches, fusion may have
// put first what is held longest; and each of these orders with what only takes memory put off until somebody
// waits for it. The order is changed only where that lowers the greatest amount of memory that is taken at
// once, or, where that stays, the way from where a tensor is made to where it is read. Kernels that may write
// over what they read last take no memory for it. Calls stay in order among each other, but for those that
// surely do nothing but make new tensors. Where results of calls tell sizes, everything stays. Deterministic;
// no GIL.
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
