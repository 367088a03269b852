// Where a plan's kernels run: memory for results, launches, products, convolutions, updates of rows, and
// waiting for them. The processor is one such device; docs/adr/0015-targets.md says what another one has to
// bring.
//
// Ownership: a device lives as long as the process; newTensor() gives one reference away. Threads: any; no
// GIL. Invalidation: none.
//
//   void* result = device.newTensor(layout);
//   device.launch({.function = f, .numbers = numbers, .memory = memory, .count = 1000, .grain = 100});
//   device.synchronize();  // before the processor reads the result
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "torchapi/folded_convolution.h"
#include "torchapi/native_tensors.h"
#include "torchapi/products.h"
#include "torchapi/row_updates.h"

namespace kintsugi::runtime {

// Machine code of a kernel: codegen/emit_kernel.h says what the arguments are.
using KernelFunction = void (*)(void* const* memory, const int64_t* numbers, int64_t begin, int64_t end);

struct KernelLaunch {
  KernelFunction function = nullptr;
  const int64_t* numbers = nullptr;
  void* const* memory = nullptr;
  int64_t count = 0;  // units of work: the function is called for ranges that cover [0, count)
  int64_t grain = 1;  // so many units are worth a thread
  // Which of the addresses in `memory` are those of single numbers, an int64_t or a double each, in the
  // memory of the processor. They are overwritten after this launch.
  std::span<const uint32_t> values;
};

// A convolution with the operators that follow it, as a device computes it. Owned by the plan. Threads: any
// number at once; no GIL.
class NativeConvolution {
 public:
  virtual ~NativeConvolution() = default;
  // Reads its operands from the slots and puts the result into one (torchapi/folded_convolution.h).
  virtual torchapi::AtenCall::Status run(torchapi::Value* values) const = 0;
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
  // True if the device has convolutions with the operators that follow them in one.
  virtual bool hasConvolutions() const = 0;
  virtual std::unique_ptr<NativeConvolution> makeConvolution(torchapi::ConvolutionForm form) = 0;
  // Writes to indexed rows, in the order of the launches. The answer is known when this returns; kOther
  // leaves the write to torch's operator. The arguments are those of torchapi::updateRows().
  virtual torchapi::RowUpdateStatus updateRows(const torchapi::RowUpdate& update, void* target, void* index,
                                               void* source) = 0;
};

// Runs a kernel on the calling thread, or with torch's threads where there is enough to do, before launch()
// returns.
NativeDevice& processor();

}  // namespace kintsugi::runtime
