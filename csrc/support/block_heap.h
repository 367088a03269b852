// A heap of large blocks whose pages stay with the process: what is freed is there for the next, without a
// page that has to be zeroed by the kernel first.
//
// Idea: one range of addresses is reserved, and used from its beginning on; pages that nobody has touched
// cost nothing. Free neighbours are merged, and a block is taken from the smallest class of free ones that
// has one large enough, the last one freed first (its lines are the likeliest to be in a cache). Each block
// begins with a header of one cache line.
//
// Invariants: blocks lie one behind the other from the beginning to `top_`; no two neighbours are free; every
// free block is in the list of its class. `idleBytes()` counts free memory that may have pages.
//
// Ownership: a block is its holder's until release(). Threads: not safe; the owner locks. Invalidation:
// trim() gives pages of free blocks back to the system, the blocks stay where they are.
//
//   BlockHeap heap(size_t{1} << 30);
//   void* block = heap.allocate(1 << 20);
//   heap.release(block);  // the next allocate(1 << 20) gets the same pages
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kintsugi {

class BlockHeap {
 public:
  static constexpr size_t kAlignment = 64;

  // Of `reserve` bytes at most. Where the system refuses the range, nothing can be allocated.
  explicit BlockHeap(size_t reserve);
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;

  // Uninitialized, aligned to kAlignment; null if there is no room.
  void* allocate(size_t bytes);
  void release(void* memory);
  bool owns(const void* memory) const {
    const char* at = static_cast<const char*>(memory);
    return at >= begin_ && at < end_;
  }

  size_t usedBytes() const { return used_; }
  size_t idleBytes() const { return idle_; }
  // Gives pages back until at most `keep` bytes are idle, those of the largest blocks first.
  void trim(size_t keep);

  // Do the invariants hold? Walks all blocks.
  bool isSound() const;

 private:
  struct Block;
  // Eight classes for each power of two.
  static constexpr size_t kClasses = 40 * 8;
  static size_t classOf(size_t size);

  Block* above(Block* block) const;
  Block* findFree(size_t need) const;
  Block* grow(size_t need);
  void split(Block* block, size_t need);
  void insert(Block* block);
  void remove(Block* block);

  char* begin_ = nullptr;
  char* top_ = nullptr;  // nothing beyond it has been a block yet
  char* end_ = nullptr;
  Block* last_ = nullptr;
  size_t used_ = 0;
  size_t idle_ = 0;
  std::array<Block*, kClasses> free_{};
  std::array<uint64_t, kClasses / 64> filled_{};  // a bit for each list that is not empty
};

}  // namespace kintsugi
