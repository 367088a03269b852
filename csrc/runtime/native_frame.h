// The values and buffers of one run of a native plan. Later runs use the same frame again.
//
// Ownership: a frame owns what is in its places, but for the values of inputs, which are borrowed while a run
// lasts. Threads: a run's own. GIL: not needed. Invalidation: with its plan.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/native_plan.h"

namespace kintsugi::runtime {

struct NativeFrame {
  const NativePlan* plan = nullptr;     // the plan that the frame is for
  std::vector<torchapi::Value> values;  // by slot
  bool steady = false;                  // the plan's steady steps have been run
  bool begun = false;                   // a step of the present run has been done
  std::vector<void*> kept;              // owned: tensors whose memory later runs use again
  // Memory of inputs that kernels read or write, held while a run lasts: another thread may give a tensor
  // other memory meanwhile (tensor.data = other).
  struct Held {
    torchapi::HeldMemory memory;
    bool wanted = false;
  };
  std::vector<Held> held;  // by slot of an input
  std::vector<int64_t> sizes;
  std::vector<void*> memory;
  std::vector<int64_t> numbers;   // of the present kernel
  uint8_t outside = 0;            // the present kernel has found an index out of range
  torchapi::TensorLayout layout;  // of the present tensor
  // Memory of the inputs: as it is, and as it was found fit to write to last.
  std::vector<torchapi::MemoryExtent> extents, fitExtents;
  torchapi::CallState calls;
  explicit NativeFrame(const NativePlan& of);
  NativeFrame(const NativeFrame&) = delete;
  ~NativeFrame();
};

// While one lives, the memory of a frame's inputs is held.
class HeldInputs {
 public:
  explicit HeldInputs(NativeFrame& frame);
  ~HeldInputs();
  HeldInputs(const HeldInputs&) = delete;

 private:
  NativeFrame& frame_;
};

}  // namespace kintsugi::runtime
