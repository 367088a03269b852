// The memory of tensors that runs make: kept between runs, so that steady state touches no page for the first
// time.
//
// Idea: glibc gives large blocks, and what lies at the end of its heap, back to the system as soon as they
// are free. The next run gets them back one page fault after the other, each of which zeroes a page: measured
// with mid-sized models, up to a third of eager mode's time. So torch's allocator on the CPU is replaced by
// one that asks a BlockHeap first, while the thread is in a run (replay or native code, whoever allocates:
// our kernels or torch's operators); everything else goes where it went before.
//
// Ownership: a block belongs to its tensor's storage, which may outlive the run, the compiled callable and
// reset(). Threads: any; one lock. Fork: the child has the same blocks. Invalidation: what is idle goes back
// to the system beyond setRunMemoryLimit(), beyond what has been in use at once lately, and with
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
  uint64_t idle = 0;  // bytes that are kept for the next ones
};

// Once, before the first run.
void installRunMemory();
// How many bytes may stay idle, but no more than an eighth of the memory that there is; 0: runs allocate as
// everything else does.
void setRunMemoryLimit(uint64_t bytes);
RunMemory runMemory();
// All that is idle goes back to the system.
void trimRunMemory();

}  // namespace kintsugi::torchapi
