// Tensors as native code handles them: made, aliased and read without the dispatcher; and what has to hold
// around it.
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

// Uninitialized memory of its own on the CPU.
void* newTensor(const TensorLayout& layout);
// The same elements in memory of their own, in the same layout if that leaves no gaps.
void* copyTensor(void* impl);
// Ones and zeros from the default generator, as dropout draws them.
void* drawMask(const TensorLayout& layout, double probability);
// A tensor in the memory of `base`, `offset` elements behind its first. No view as autograd knows them.
void* aliasTensor(void* base, const TensorLayout& layout, int64_t offset);
// Does nobody but the caller hold the tensor or its memory?
bool isSoleOwner(const void* impl);
// Does a tensor lie in memory as the layout says, element for element?
bool hasLayout(const void* impl, const TensorLayout& layout);
// A tensor of the layout's sizes and type that lies otherwise is replaced by a copy. False: it has others.
bool restride(void*& impl, const TensorLayout& layout);
// Likewise, of a rank, and contiguous if that is asked for.
bool hasForm(const void* impl, ir::DType dtype, size_t rank, bool contiguous);
// A strided tensor on the CPU without anything lazy, wrapped or of Python's about it.
bool isOrdinary(const void* impl);
bool tensorRequiresGrad(const void* impl);
// The first element.
void* dataPointer(void* impl);

// The memory of a tensor, which stays while it is held whatever becomes of the tensor.
struct HeldMemory {
  void* storage = nullptr;  // owned
  void* first = nullptr;    // element of the tensor
};
HeldMemory holdMemory(void* impl);
// Nothing is held afterwards.
void letGo(HeldMemory& memory);

// The bytes that a tensor's elements are within. Of one without elements both are the same.
struct MemoryExtent {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool operator==(const MemoryExtent&) const = default;
};
MemoryExtent memoryExtent(const void* impl);
// May the elements be written to without an operator? Makes sure that they are nobody else's copy. Not those
// of an inference tensor: whether that may be changed depends on the thread's mode.
bool prepareWrite(void* impl);
// Counts so many writes to the tensor's memory.
void countWrites(void* impl, uint32_t times);

// Calls range(context, begin, end) for parts of [0, count) of at least `grain`, on torch's threads.
void parallelFor(int64_t count, int64_t grain, void (*range)(void* context, int64_t begin, int64_t end),
                 void* context);

int64_t threadCount();

// While one lives, operators are called below autograd: nothing is differentiated, results are no views.
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
