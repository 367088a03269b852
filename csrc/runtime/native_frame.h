// What one run of a native plan works in; later runs use it again.
//
// Ownership: a frame owns what is in its places, but for the values of inputs, which are borrowed while a run
// lasts. Threads: a run's own. GIL: not needed. Invalidation: with its plan.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/native_plan.h"

namespace kintsugi::runtime {

struct NativeFrame {
  const NativePlan* plan = nullptr;     // whose values these are
  std::vector<torchapi::Value> values;  // by slot
  bool steady = false;                  // what is the same in every run has been computed
  bool begun = false;                   // steps of the present run have been taken
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
  uint8_t outside = 0;            // the present kernel has looked for a place that is not there
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
