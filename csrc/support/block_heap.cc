#include "support/block_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "support/check.h"

namespace kintsugi {

namespace {

constexpr size_t kPage = 4096;
// A rest smaller than that stays with the block that it was part of.
constexpr size_t kLeastRest = 2 * kPage;
// So much is used page by page; who needs more gets huge pages, which are zeroed and looked up as one.
constexpr size_t kSmallPages = size_t{8} << 20;
// How many blocks of the class that a size belongs to are looked at: some of them are too small.
constexpr int kLooks = 8;

size_t roundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

struct alignas(BlockHeap::kAlignment) BlockHeap::Block {
  Block* below;    // the neighbour; null: this is the first one
  size_t size;     // with the header
  size_t touched;  // of a free block: how many bytes may have pages
  Block* next;     // of a free block: in its list
  Block* previous;
  bool free;

  char* bytes() { return reinterpret_cast<char*>(this); }
};

BlockHeap::BlockHeap(size_t reserve) {
  static_assert(sizeof(Block) == kAlignment);
  reserve = roundUp(reserve, kPage);
  void* range =
      mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    return;
  }
  begin_ = top_ = static_cast<char*>(range);
  end_ = begin_ + reserve;
  if (reserve > kSmallPages) {
    madvise(begin_ + kSmallPages, reserve - kSmallPages, MADV_HUGEPAGE);  // best effort
  }
}

BlockHeap::~BlockHeap() {
  if (begin_ != nullptr) {
    munmap(begin_, static_cast<size_t>(end_ - begin_));
  }
}

size_t BlockHeap::classOf(size_t size) {
  const auto octave = static_cast<size_t>(std::bit_width(size)) - 1;
  const size_t eighth = octave >= 3 ? (size >> (octave - 3)) & 7 : 0;
  return std::min(octave * 8 + eighth, kClasses - 1);
}

BlockHeap::Block* BlockHeap::above(Block* block) const {
  char* at = block->bytes() + block->size;
  return at == top_ ? nullptr : reinterpret_cast<Block*>(at);
}

void BlockHeap::insert(Block* block) {
  const size_t index = classOf(block->size);
  block->free = true;
  block->previous = nullptr;
  block->next = free_[index];
  if (block->next != nullptr) {
    block->next->previous = block;
  }
  free_[index] = block;
  filled_[index / 64] |= uint64_t{1} << (index % 64);
  idle_ += block->touched;
}

void BlockHeap::remove(Block* block) {
  const size_t index = classOf(block->size);
  (block->previous != nullptr ? block->previous->next : free_[index]) = block->next;
  if (block->next != nullptr) {
    block->next->previous = block->previous;
  }
  if (free_[index] == nullptr) {
    filled_[index / 64] &= ~(uint64_t{1} << (index % 64));
  }
  block->free = false;
  idle_ -= block->touched;
}

BlockHeap::Block* BlockHeap::findFree(size_t need) const {
  const size_t own = classOf(need);
  Block* best = nullptr;
  int looks = kLooks;
  for (Block* block = free_[own]; block != nullptr && looks-- > 0; block = block->next) {
    if (block->size >= need && (best == nullptr || block->size < best->size)) {
      best = block;
    }
  }
  if (best != nullptr || own + 1 == kClasses) {
    return best;
  }
  // Any block of a class beyond is large enough.
  for (size_t word = (own + 1) / 64; word < filled_.size(); ++word) {
    uint64_t bits = filled_[word];
    bits &= word == (own + 1) / 64 ? ~uint64_t{0} << ((own + 1) % 64) : ~uint64_t{0};
    if (bits != 0) {
      return free_[word * 64 + static_cast<size_t>(std::countr_zero(bits))];
    }
  }
  return nullptr;
}

// A block at the end: the last one if it is free, and what lies behind.
BlockHeap::Block* BlockHeap::grow(size_t need) {
  const bool extend = last_ != nullptr && last_->free;
  if (extend && last_->size >= need) {  // findFree() has not come that far in its list
    Block* block = last_;
    remove(block);
    split(block, need);
    return block;
  }
  const size_t more = extend ? need - last_->size : need;
  if (static_cast<size_t>(end_ - top_) < more) {
    return nullptr;
  }
  if (extend) {
    remove(last_);
  } else {
    auto* block = reinterpret_cast<Block*>(top_);
    block->below = last_;
    block->size = 0;
    block->free = false;
    last_ = block;
  }
  last_->size += more;
  top_ += more;
  return last_;
}

// What a taken block does not need becomes a free one.
void BlockHeap::split(Block* block, size_t need) {
  const size_t rest = block->size - need;
  if (rest < kLeastRest) {
    return;
  }
  auto* free = reinterpret_cast<Block*>(block->bytes() + need);
  free->below = block;
  free->size = rest;
  free->touched = std::min(block->touched, rest);
  block->size = need;
  if (Block* next = above(free); next != nullptr) {
    next->below = free;
  } else {
    last_ = free;
  }
  insert(free);
}

void* BlockHeap::allocate(size_t bytes) {
  if (bytes > static_cast<size_t>(end_ - begin_)) {
    return nullptr;
  }
  const size_t need = roundUp(bytes + sizeof(Block), kAlignment);
  Block* block = findFree(need);
  if (block != nullptr) {
    remove(block);
    split(block, need);
  } else {
    block = grow(need);
  }
  if (block == nullptr) {
    return nullptr;
  }
  used_ += block->size;
  return block->bytes() + sizeof(Block);
}

void BlockHeap::release(void* memory) {
  auto* block = reinterpret_cast<Block*>(static_cast<char*>(memory) - sizeof(Block));
  KINTSUGI_CHECK(!block->free, "a block is released twice");
  used_ -= block->size;
  block->touched = block->size;
  Block* next = above(block);
  if (next != nullptr && next->free) {
    remove(next);
    block->size += next->size;
    block->touched += next->touched;
    next = above(block);
  }
  if (Block* below = block->below; below != nullptr && below->free) {
    remove(below);
    below->size += block->size;
    below->touched += block->touched;
    block = below;
  }
  (next != nullptr ? next->below : last_) = block;
  insert(block);
}

void BlockHeap::trim(size_t keep) {
  for (size_t index = kClasses; index-- > 0 && idle_ > keep;) {
    for (Block* block = free_[index]; block != nullptr && idle_ > keep; block = block->next) {
      if (block->touched == 0) {
        continue;
      }
      const auto begin = roundUp(reinterpret_cast<uintptr_t>(block + 1), kPage);
      const auto end = reinterpret_cast<uintptr_t>(block->bytes() + block->size) / kPage * kPage;
      if (begin < end) {
        madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
      }
      idle_ -= block->touched;
      block->touched = 0;
    }
  }
}

bool BlockHeap::isSound() const {
  size_t used = 0, idle = 0, freeBlocks = 0, listed = 0;
  const Block* below = nullptr;
  for (char* at = begin_; at != top_;) {
    auto* block = reinterpret_cast<Block*>(at);
    if (block->below != below || block->size < sizeof(Block) || block->size % kAlignment != 0 ||
        (block->free && below != nullptr && below->free)) {
      return false;
    }
    (block->free ? idle : used) += block->free ? block->touched : block->size;
    freeBlocks += block->free ? 1 : 0;
    below = block;
    at += block->size;
  }
  for (size_t index = 0; index < kClasses; ++index) {
    const bool filled = (filled_[index / 64] >> (index % 64) & 1) != 0;
    if (filled != (free_[index] != nullptr)) {
      return false;
    }
    for (const Block* block = free_[index]; block != nullptr; block = block->next, ++listed) {
      if (!block->free || classOf(block->size) != index) {
        return false;
      }
    }
  }
  return below == last_ && used == used_ && idle == idle_ && freeBlocks == listed;
}

}  // namespace kintsugi
