// Where a plan's kernels run: memory for results, launches, products, and waiting for them. The processor is
// one such device; docs/adr/0015-targets.md says what another one has to bring.
//
// Ownership: a device lives as long as the process; newTensor() gives one reference away. Threads: any; no
// GIL. Invalidation: none.
//
//   void* result = device.newTensor(layout);
//   device.launch({.function = f, .numbers = numbers, .memory = memory, .count = 1000, .grain = 100});
//   device.synchronize();  // before the processor reads the result
#pragma once

#include <cstdint>

#include "torchapi/native_tensors.h"
#include "torchapi/products.h"

namespace kintsugi::runtime {

// Machine code of a kernel: codegen/emit_kernel.h says what the arguments are.
using KernelFunction = void (*)(void* const* memory, const int64_t* numbers, int64_t begin, int64_t end);

struct KernelLaunch {
  KernelFunction function = nullptr;
  const int64_t* numbers = nullptr;
  void* const* memory = nullptr;
  int64_t count = 0;  // units of work: the function is called for ranges that cover [0, count)
  int64_t grain = 1;  // so many units are worth a thread
};

class NativeDevice {
 public:
  virtual ~NativeDevice() = default;
  // Uninitialized memory of its own.
  virtual void* newTensor(const torchapi::TensorLayout& layout) = 0;
  // Kernels are run in the order of their launches, as far as they can tell. What the launch points to is
  // read before this returns; what the kernel writes is there after synchronize().
  virtual void launch(const KernelLaunch& launch) = 0;
  virtual void synchronize() = 0;
  // A matrix product, in the order of the launches. The arguments are those of torchapi::multiplyFloats().
  virtual void multiply(const torchapi::ProductShape& shape, const float* left, const float* right,
                        float* result) = 0;
};

// Runs a kernel on the calling thread, or with torch's threads where there is enough to do, before launch()
// returns.
NativeDevice& processor();

}  // namespace kintsugi::runtime
