#include "torchapi/run_memory.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "support/block_heap.h"
#include "support/memory_limits.h"
#include "support/target.h"

namespace kintsugi::torchapi {

namespace {

// After this many allocations, memory that was not needed since the last time is given back to the system.
// Giving back takes some milliseconds, which is nothing beside so many large tensors. Sooner: pages come and
// go, each with a fault when it is needed again. Later: a process whose large inputs are over keeps their
// memory longer.
constexpr uint32_t kEpoch = 4096;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPossible = false;  // so that the sanitizer finds reads past the end of a tensor
#else
constexpr bool kPossible = true;
#endif

// Never destroyed: tensors may be freed while the process exits.
class Pool {
 public:
  static Pool& instance() {
    static auto* pool = new Pool();
    return *pool;
  }

  void* allocate(size_t bytes) {
    std::lock_guard lock(mutex_);
    void* block = heap_.allocate(bytes);
    most_ = std::max(most_, heap_.usedBytes());
    if (++allocations_ == kEpoch) {
      heap_.trim(most_ - heap_.usedBytes());
      allocations_ = 0;
      most_ = heap_.usedBytes();
    }
    return block;
  }

  void release(void* block) {
    std::lock_guard lock(mutex_);
    heap_.release(block);
    if (const size_t limit = limit_.load(std::memory_order_relaxed); heap_.idleBytes() > limit) {
      heap_.trim(limit / 2);  // so that the next block does not trim again
    }
  }

  bool owns(const void* memory) const { return heap_.owns(memory); }
  bool isOn() const { return limit_.load(std::memory_order_relaxed) != 0; }

  void setLimit(size_t limit) {
    std::lock_guard lock(mutex_);
    limit = std::min(limit, memory_ / 8);
    limit_.store(limit, std::memory_order_relaxed);
    heap_.trim(limit);
  }

  void trim() {
    std::lock_guard lock(mutex_);
    heap_.trim(0);
  }

  RunMemory state() {
    std::lock_guard lock(mutex_);
    return {heap_.usedBytes(), heap_.idleBytes()};
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  Pool() : memory_(availableMemory()), heap_(memory_) {}

  std::mutex mutex_;
  const size_t memory_;
  BlockHeap heap_;
  std::atomic<size_t> limit_ = 0;
  size_t most_ = 0;  // the most bytes in use at once since the last trim
  uint32_t allocations_ = 0;
};

// torch's allocator before ours was installed; null: ours is not installed. Written once, with the GIL,
// before the first run.
at::Allocator* fallback = nullptr;

void release(void* memory) {
  Pool& pool = Pool::instance();
  if (pool.owns(memory)) {
    c10::profiledCPUMemoryReporter().Delete(memory);
    pool.release(memory);
  } else {
    fallback->raw_deleter()(memory);
  }
}

// If the system has no memory left, gives idle blocks back and asks again.
void* allocateElsewhere(size_t bytes) {
  try {
    return fallback->allocate(bytes).release_context();
  } catch (const c10::Error&) {
    if (Pool::instance().state().idle == 0) {
      throw;
    }
  }
  Pool::instance().trim();
  return fallback->allocate(bytes).release_context();
}

// All blocks have the same deleter, because callers of raw_deleter() expect that.
class RunAllocator final : public at::Allocator {
 public:
  RunAllocator() : leastBytes_(target().costs.pooledBytes) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (RunMemoryScope::isActive() && bytes >= leastBytes_ && Pool::instance().isOn()) {
      if (void* block = Pool::instance().allocate(bytes); block != nullptr) {
        c10::profiledCPUMemoryReporter().New(block, bytes);
        return {block, block, &release, at::Device(at::DeviceType::CPU)};
      }
    }
    void* memory = allocateElsewhere(bytes);
    return {memory, memory, &release, at::Device(at::DeviceType::CPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    fallback->copy_data(to, from, bytes);
  }

 private:
  const size_t leastBytes_;  // smaller blocks are not worth a lock, and glibc keeps them
};

}  // namespace

void installRunMemory() {
  at::Allocator* current = c10::GetCPUAllocator();
  // If the user has installed an allocator whose blocks are more than a pointer, it stays.
  if (!kPossible || fallback != nullptr || current->raw_deleter() == nullptr) {
    return;
  }
  fallback = current;
  pthread_atfork([] { Pool::instance().lock(); }, [] { Pool::instance().unlock(); },
                 [] { Pool::instance().unlock(); });
  c10::SetCPUAllocator(new RunAllocator());
}

void setRunMemoryLimit(uint64_t bytes) { Pool::instance().setLimit(bytes); }
RunMemory runMemory() { return Pool::instance().state(); }
void trimRunMemory() { Pool::instance().trim(); }

}  // namespace kintsugi::torchapi
