// Functions for native code: tensors that are made, aliased and read without the dispatcher, and conditions
// that must hold.
//
// Ownership: functions that return a tensor (void*, a TensorImpl) give one reference away. Threads: any; the
// GIL is not needed. Invalidation: none.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "torchapi/value.h"

namespace kintsugi::torchapi {

using ir::TensorLayout;

// A tensor on the CPU with uninitialized memory of its own.
void* newTensor(const TensorLayout& layout);
// A copy in memory of its own. It has the same layout, if that has no gaps.
void* copyTensor(void* impl);
// Ones and zeros, drawn from the default generator as dropout does.
void* drawMask(const TensorLayout& layout, double probability);
// A tensor in the memory of `base`, beginning `offset` elements after its first one. For autograd it is no
// view.
void* aliasTensor(void* base, const TensorLayout& layout, int64_t offset);
// True if only the caller holds the tensor and its memory.
bool isSoleOwner(const void* impl);
// True if the tensor has exactly this layout in memory.
bool hasLayout(const void* impl, const TensorLayout& layout);
// A tensor with the layout's sizes and type but other strides is replaced by a copy. False: sizes or type
// differ.
bool restride(void*& impl, const TensorLayout& layout);
// True if the tensor has this type and rank and, if `contiguous` is set, is contiguous.
bool hasForm(const void* impl, ir::DType dtype, size_t rank, bool contiguous);
// True for a strided tensor on the CPU that is not lazy, not wrapped, and does not dispatch to Python.
bool isOrdinary(const void* impl);
bool tensorRequiresGrad(const void* impl);
// The address of the first element.
void* dataPointer(void* impl);

// The memory of a tensor. It stays alive while it is held, whatever happens to the tensor.
struct HeldMemory {
  void* storage = nullptr;  // owned
  void* first = nullptr;    // element of the tensor
};
HeldMemory holdMemory(void* impl);
// Releases the memory; `memory` is empty afterwards.
void releaseMemory(HeldMemory& memory);

// The range of bytes that a tensor's elements are in. Without elements, begin and end are equal.
struct MemoryExtent {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool operator==(const MemoryExtent&) const = default;
};
MemoryExtent memoryExtent(const void* impl);
// True if the elements may be written to without an operator. Makes sure first that they are not a lazy copy
// of another tensor's. False for an inference tensor, because the thread's mode decides whether it may be
// changed.
bool prepareWrite(void* impl);
// Adds to the version counter, as if the tensor had been written to this many times.
void countWrites(void* impl, uint32_t times);
// The same, up to the version that a tensor has which was written to so often since it was made.
void raiseVersion(void* impl, uint32_t writes);
// For autograd, a view was made so many writes ago.
void countAsViewedBefore(void* impl, uint32_t writes);

// Calls range(context, begin, end) for parts of [0, count) of at least `grain`, on torch's threads.
void parallelFor(int64_t count, int64_t grain, void (*range)(void* context, int64_t begin, int64_t end),
                 void* context);

int64_t threadCount();

// During its lifetime, operators are called below autograd: nothing is differentiated, and results are no
// views.
class BelowAutograd {
 public:
  BelowAutograd();
  ~BelowAutograd();
  BelowAutograd(const BelowAutograd&) = delete;

 private:
  struct Impl;
  alignas(8) unsigned char storage_[64];
};

}  // namespace kintsugi::torchapi
