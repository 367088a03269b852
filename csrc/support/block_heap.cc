#include "support/block_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "support/check.h"
#include "support/host_machine.h"

namespace kintsugi {

namespace {

// A rest smaller than that stays with the block that it was part of. Less: more blocks that nothing fits in,
// and longer searches. More: memory of each block that is not used; callers ask for 32 KiB and more.
constexpr size_t kLeastRest = 8192;
// So much is used page by page; who needs more gets huge pages, which are zeroed and looked up as one. Less:
// small programs get 2 MiB where they use some KiB. More: large ones take a fault for each page of it.
constexpr size_t kSmallPages = size_t{8} << 20;
// No region is smaller, unless the system or the heap's owner has less to give. It costs addresses alone;
// smaller ones would use up the regions there may be (kMostRegions), and blocks do not join across two of
// them.
constexpr size_t kLeastRegion = size_t{32} << 20;
// How many blocks of the class that a size belongs to are looked at: some of them are too small. Sizes of a
// class are within an eighth of each other, so fewer looks would pass by blocks that fit, and more take
// longer than the eighth that is saved is worth.
constexpr int kLooks = 8;

size_t roundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

char* mapped(size_t bytes) {
  void* range =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return range == MAP_FAILED ? nullptr : static_cast<char*>(range);
}

// `bytes` at a multiple of `unit`; null: the system refuses them.
char* mapAligned(size_t bytes, size_t unit) {
  char* range = mapped(bytes);
  if (range == nullptr || reinterpret_cast<uintptr_t>(range) % unit == 0) {
    return range;
  }
  munmap(range, bytes);
  range = mapped(bytes + unit);
  if (range == nullptr) {
    return nullptr;
  }
  const size_t before =
      roundUp(reinterpret_cast<uintptr_t>(range), unit) - reinterpret_cast<uintptr_t>(range);
  if (before != 0) {
    munmap(range, before);
  }
  munmap(range + before + bytes, unit - before);
  return range + before;
}

}  // namespace

struct alignas(BlockHeap::kAlignment) BlockHeap::Block {
  Block* below;    // the neighbour; null: this is the first one
  size_t size;     // with the header
  size_t touched;  // of a free block: how many bytes may have pages
  Block* next;     // of a free block: in its list
  Block* previous;
  uint32_t region;  // its index
  bool free;

  char* bytes() { return reinterpret_cast<char*>(this); }
};

BlockHeap::BlockHeap(size_t most) : most_(roundUp(std::min(most, kUnit * kRangeMask), kUnit)) {
  static_assert(sizeof(Block) == kAlignment);
}

BlockHeap::~BlockHeap() {
  for (uint32_t index = 0; index < kMostRegions; ++index) {
    if (regions_[index].begin != nullptr) {
      dropRegion(index);
    }
  }
}

size_t BlockHeap::classOf(size_t size) {
  const auto octave = static_cast<size_t>(std::bit_width(size)) - 1;
  const size_t eighth = octave >= 3 ? (size >> (octave - 3)) & 7 : 0;
  return std::min(octave * 8 + eighth, kClasses - 1);
}

BlockHeap::Block* BlockHeap::above(Block* block) const {
  char* at = block->bytes() + block->size;
  return at == regions_[block->region].top ? nullptr : reinterpret_cast<Block*>(at);
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

// A block at the end of a region: the last one if it is free, and what follows.
BlockHeap::Block* BlockHeap::grow(size_t need) {
  const size_t count = regionCount_.load(std::memory_order_relaxed);
  for (size_t index = 0; index < count; ++index) {
    Region& region = regions_[index];
    Block* last = region.last;
    const size_t there = last != nullptr && last->free ? last->size : 0;
    if (region.begin == nullptr || static_cast<size_t>(region.end - region.top) + there < need) {
      continue;
    }
    if (there != 0) {
      remove(last);
    }
    if (there < need) {
      return growIn(region, static_cast<uint32_t>(index), need, there != 0);
    }
    split(last, need);  // findFree() has not come that far in its list
    return last;
  }
  return addRegion(need);
}

// `extend`: the last block, which is in no list, becomes so large. Otherwise there is a new one after it.
BlockHeap::Block* BlockHeap::growIn(Region& region, uint32_t index, size_t need, bool extend) {
  if (!extend) {
    auto* block = reinterpret_cast<Block*>(region.top);
    block->below = region.last;
    block->size = 0;
    block->region = index;
    block->free = false;
    region.last = block;
  }
  region.top += need - region.last->size;
  region.last->size = need;
  return region.last;
}

BlockHeap::Block* BlockHeap::addRegion(size_t need) {
  uint32_t index = 0;
  while (index < kMostRegions && regions_[index].begin != nullptr) {
    ++index;
  }
  const size_t least = roundUp(need, kUnit);
  if (index == kMostRegions || most_ - mapped_ < least) {
    return nullptr;
  }
  size_t size = std::min(std::max({least, kLeastRegion, roundUp(mapped_ / 2, kUnit)}), most_ - mapped_);
  char* begin = mapAligned(size, kUnit);
  while (begin == nullptr && size > least) {  // address space is short
    size = std::max(least, size / 2 / kUnit * kUnit);
    begin = mapAligned(size, kUnit);
  }
  if (begin == nullptr) {
    return nullptr;
  }
  const size_t small = index == 0 ? std::min(kSmallPages, size) : 0;
  if (size > small) {
    madvise(begin + small, size - small, MADV_HUGEPAGE);  // best effort
  }
  mapped_ += size;
  regions_[index] = {begin, begin, begin + size, nullptr};
  ranges_[index].store(reinterpret_cast<uintptr_t>(begin) / kUnit << kRangeBits | size / kUnit,
                       std::memory_order_relaxed);
  if (regionCount_.load(std::memory_order_relaxed) <= index) {
    regionCount_.store(index + 1, std::memory_order_relaxed);
  }
  return growIn(regions_[index], index, need, false);
}

bool BlockHeap::isWholeRegion(Block* block) const {
  return block->below == nullptr && block == regions_[block->region].last;
}

void BlockHeap::dropRegion(uint32_t index) {
  Region& region = regions_[index];
  const auto size = static_cast<size_t>(region.end - region.begin);
  ranges_[index].store(0, std::memory_order_relaxed);  // before the addresses can be somebody else's
  std::atomic_thread_fence(std::memory_order_release);
  munmap(region.begin, size);
  mapped_ -= size;
  region = {};
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
  free->region = block->region;
  free->touched = std::min(block->touched, rest);
  block->size = need;
  if (Block* next = above(free); next != nullptr) {
    next->below = free;
  } else {
    regions_[free->region].last = free;
  }
  insert(free);
}

void* BlockHeap::allocate(size_t bytes) {
  if (bytes > most_) {
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
  (next != nullptr ? next->below : regions_[block->region].last) = block;
  insert(block);
}

void BlockHeap::trim(size_t keep) {
  for (size_t index = kClasses; index-- > 0 && idle_ > keep;) {
    Block* next = nullptr;
    for (Block* block = free_[index]; block != nullptr && idle_ > keep; block = next) {
      next = block->next;
      if (block->touched == 0) {
        continue;
      }
      if (isWholeRegion(block)) {
        remove(block);
        dropRegion(block->region);
        continue;
      }
      const size_t page = hostMachine().pageBytes;
      const auto begin = roundUp(reinterpret_cast<uintptr_t>(block + 1), page);
      const auto end = reinterpret_cast<uintptr_t>(block->bytes() + block->size) / page * page;
      if (begin < end) {
        madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
      }
      idle_ -= block->touched;
      block->touched = 0;
    }
  }
}

bool BlockHeap::isSound() const {
  size_t used = 0, idle = 0, mapped = 0, freeBlocks = 0, listed = 0;
  for (uint32_t index = 0; index < kMostRegions; ++index) {
    const Region& region = regions_[index];
    const Block* below = nullptr;
    for (char* at = region.begin; at != region.top;) {
      auto* block = reinterpret_cast<Block*>(at);
      if (block->below != below || block->size < sizeof(Block) || block->size % kAlignment != 0 ||
          block->region != index || (block->free && below != nullptr && below->free)) {
        return false;
      }
      (block->free ? idle : used) += block->free ? block->touched : block->size;
      freeBlocks += block->free ? 1 : 0;
      below = block;
      at += block->size;
    }
    if (below != region.last || region.top > region.end ||
        (region.begin != nullptr && (!owns(region.begin) || !owns(region.end - 1)))) {
      return false;
    }
    mapped += static_cast<size_t>(region.end - region.begin);
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
  return mapped == mapped_ && used == used_ && idle == idle_ && freeBlocks == listed;
}

}  // namespace kintsugi
