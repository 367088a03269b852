// A heap of large blocks whose pages stay with the process: what is freed is there for the next, without a
// page that has to be zeroed by the kernel first.
//
// Idea: addresses come from the system in regions, the first one when somebody allocates, each at least half
// as large as all before it, so that there are few and no more address space is taken than some half of what
// was needed. A region is used from its beginning on; pages that nobody has touched cost nothing. Free
// neighbours are merged, and a block is taken from the smallest class of free ones that has one large enough,
// the last one freed first (its lines are the likeliest to be in a cache). Each block begins with a header of
// one cache line.
//
// Invariants: blocks lie one after the other from the beginning of a region to its `top`; no two neighbours
// are free; every free block is in the list of its class. `idleBytes()` counts free memory that may have
// pages.
//
// Ownership: a block is its holder's until release(). Threads: not safe, the owner locks; only owns() may be
// asked by any thread, of memory that nobody frees meanwhile. Invalidation: trim() gives pages of free blocks
// back to the system, the blocks stay where they are; a region without any block goes back as a whole.
//
//   BlockHeap heap(size_t{1} << 30);
//   void* block = heap.allocate(1 << 20);
//   heap.release(block);  // the next allocate(1 << 20) gets the same pages
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kintsugi {

class BlockHeap {
 public:
  static constexpr size_t kAlignment = 64;

  // Of `most` bytes in all. Nothing is asked of the system yet.
  explicit BlockHeap(size_t most);
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;

  // Uninitialized, aligned to kAlignment; null if there is no room, or the system gives none.
  void* allocate(size_t bytes);
  void release(void* memory);
  bool owns(const void* memory) const {
    const uint64_t unit = reinterpret_cast<uintptr_t>(memory) / kUnit;
    const size_t count = regionCount_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t range = ranges_[i].load(std::memory_order_relaxed);
      if (unit - (range >> kRangeBits) < (range & kRangeMask)) return true;
    }
    return false;
  }

  size_t usedBytes() const { return used_; }
  size_t idleBytes() const { return idle_; }
  // Address space that the heap has now.
  size_t mappedBytes() const { return mapped_; }
  // Gives pages back until at most `keep` bytes are idle, those of the largest blocks first.
  void trim(size_t keep);

  // Do the invariants hold? Walks all blocks.
  bool isSound() const;

 private:
  struct Block;
  struct Region {
    char* begin = nullptr;  // null: there is none at this index
    char* top = nullptr;    // nothing beyond it has been a block yet
    char* end = nullptr;
    Block* last = nullptr;
  };
  // Eight classes for each power of two.
  static constexpr size_t kClasses = 40 * 8;
  static constexpr size_t kMostRegions = 64;
  // Regions are multiples of a huge page. So one word says where one is: the number of its first unit and how
  // many they are, which a thread reads at once while another one puts a region in the place of this one.
  static constexpr size_t kUnit = size_t{2} << 20;
  static constexpr int kRangeBits = 24;
  static constexpr uint64_t kRangeMask = (uint64_t{1} << kRangeBits) - 1;
  static size_t classOf(size_t size);

  Block* above(Block* block) const;
  Block* findFree(size_t need) const;
  Block* grow(size_t need);
  static Block* growIn(Region& region, uint32_t index, size_t need, bool extend);
  Block* addRegion(size_t need);
  bool isWholeRegion(Block* block) const;
  void dropRegion(uint32_t index);
  void split(Block* block, size_t need);
  void insert(Block* block);
  void remove(Block* block);

  const size_t most_;
  size_t mapped_ = 0;
  size_t used_ = 0;
  size_t idle_ = 0;
  std::array<Region, kMostRegions> regions_{};
  std::atomic<size_t> regionCount_{0};  // how many places have been in use; never less than before
  std::array<std::atomic<uint64_t>, kMostRegions> ranges_{};
  std::array<Block*, kClasses> free_{};
  std::array<uint64_t, kClasses / 64> filled_{};  // a bit for each list that is not empty
};

}  // namespace kintsugi
