// Keeps the memory of tensors that runs make for the next run, so that no page has to be touched for the
// first time again.
//
// glibc gives large blocks, and blocks at the end of its heap, back to the system as soon as they are free.
// The next run then gets their pages one page fault after the other, and each fault zeroes a page. With
// mid-sized models this was measured to take up to a third of eager mode's time. So torch's CPU allocator is
// replaced by one that asks a BlockHeap first, while the thread is in a run (replay or native code; for our
// kernels and torch's operators alike). All other allocations go to the allocator that was there before.
//
// Ownership: a block belongs to its tensor's storage, which may outlive the run, the compiled callable and
// reset(). Threads: any; one lock. Fork: the child has the same blocks. Invalidation: idle blocks are given
// back to the system beyond setRunMemoryLimit(), beyond what was recently in use at once, and by
// trimRunMemory().
//
//   {
//     RunMemoryScope scope;
//     run();           // what it allocates comes from the heap
//   }
#pragma once

#include <cstdint>

namespace kintsugi::torchapi {

class RunMemoryScope {
 public:
  RunMemoryScope() noexcept { ++depth_; }
  ~RunMemoryScope() { --depth_; }
  RunMemoryScope(const RunMemoryScope&) = delete;

  static bool isActive() noexcept { return depth_ != 0; }

 private:
  static inline constinit thread_local uint32_t depth_ = 0;
};

struct RunMemory {
  uint64_t used = 0;  // bytes in tensors
  uint64_t idle = 0;  // bytes that are kept for later tensors
};

// Called once, before the first run.
void installRunMemory();
// The number of bytes that may stay idle, limited to an eighth of the machine's memory. 0: runs allocate like
// all other code.
void setRunMemoryLimit(uint64_t bytes);
RunMemory runMemory();
// Gives all idle memory back to the system.
void trimRunMemory();

}  // namespace kintsugi::torchapi
