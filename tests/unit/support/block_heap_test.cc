#include "support/block_heap.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <vector>

namespace kintsugi {
namespace {

constexpr size_t kMega = size_t{1} << 20;

TEST(BlockHeap, WhatIsFreedIsThereForTheNext) {
  BlockHeap heap(64 * kMega);
  void* first = heap.allocate(kMega);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % BlockHeap::kAlignment, 0u);
  EXPECT_TRUE(heap.owns(first));
  EXPECT_FALSE(heap.owns(&heap));
  heap.release(first);
  EXPECT_EQ(heap.allocate(kMega), first);
  EXPECT_TRUE(heap.isSound());
}

TEST(BlockHeap, NeighboursAreMerged) {
  BlockHeap heap(64 * kMega);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(heap.allocate(kMega));
  void* behind = heap.allocate(kMega);
  for (const int i : {1, 3, 5, 7, 0, 2, 6, 4}) heap.release(blocks[static_cast<size_t>(i)]);
  EXPECT_TRUE(heap.isSound());
  EXPECT_EQ(heap.allocate(8 * kMega), blocks[0]);
  EXPECT_GT(behind, blocks[7]);
}

TEST(BlockHeap, TheLastBlockGrows) {
  BlockHeap heap(64 * kMega);
  void* first = heap.allocate(kMega);
  void* second = heap.allocate(kMega);
  heap.release(second);
  EXPECT_EQ(heap.allocate(4 * kMega), second);
  EXPECT_TRUE(heap.isSound());
  EXPECT_NE(first, second);
}

TEST(BlockHeap, TheLastBlockIsFoundBehindManyThatAreTooSmall) {
  BlockHeap heap(kMega);
  std::vector<void*> small;
  for (int i = 0; i < 12; ++i) {  // of the class of what is asked for
    small.push_back(heap.allocate(66000));
    heap.allocate(64);
  }
  void* last = heap.allocate(73000);
  heap.release(last);
  for (void* block : small) heap.release(block);
  EXPECT_EQ(heap.allocate(72500), last);
  EXPECT_TRUE(heap.isSound());
}

TEST(BlockHeap, ThereIsNoMoreThanWasReserved) {
  BlockHeap heap(4 * kMega);
  EXPECT_EQ(heap.allocate(5 * kMega), nullptr);
  EXPECT_EQ(heap.allocate(~size_t{0}), nullptr);
  void* half = heap.allocate(2 * kMega);
  EXPECT_NE(half, nullptr);
  EXPECT_EQ(heap.allocate(2 * kMega), nullptr);
  EXPECT_NE(heap.allocate(kMega), nullptr);
  EXPECT_TRUE(heap.isSound());
}

TEST(BlockHeap, WhatTheSystemRefusesIsNotThere) {
  BlockHeap heap(size_t{1} << 60);
  EXPECT_EQ(heap.allocate(size_t{1} << 59), nullptr);
  EXPECT_FALSE(heap.owns(nullptr));
  EXPECT_EQ(heap.mappedBytes(), 0u);
  void* small = heap.allocate(64);
  EXPECT_TRUE(heap.owns(small));
  EXPECT_TRUE(heap.isSound());
}

TEST(BlockHeap, AddressesAreTakenWhenTheyAreNeeded) {
  BlockHeap heap(4096 * kMega);
  EXPECT_EQ(heap.mappedBytes(), 0u);
  std::vector<void*> blocks;
  for (size_t held = 1; held <= 300; ++held) {
    blocks.push_back(heap.allocate(4 * kMega));
    ASSERT_NE(blocks.back(), nullptr);
    // What is needed, half as much again, and the room that is left where a block does not fit any more.
    EXPECT_LE(heap.mappedBytes(), 4 * held * kMega * 3 / 2 + 64 * kMega);
  }
  EXPECT_TRUE(heap.isSound());
  for (size_t i = 0; i < blocks.size(); i += 2) heap.release(blocks[i]);
  for (size_t i = 1; i < blocks.size(); i += 2) heap.release(blocks[i]);
  EXPECT_TRUE(heap.isSound());
  heap.trim(0);
  EXPECT_EQ(heap.mappedBytes(), 0u);
  EXPECT_FALSE(heap.owns(blocks[0]));
  EXPECT_TRUE(heap.isSound());
  EXPECT_NE(heap.allocate(4 * kMega), nullptr);
}

TEST(BlockHeap, ABlockThatIsLargerThanARegionHasOneOfItsOwn) {
  BlockHeap heap(4096 * kMega);
  void* small = heap.allocate(kMega);
  auto* large = static_cast<char*>(heap.allocate(700 * kMega));
  ASSERT_NE(large, nullptr);
  EXPECT_TRUE(heap.owns(large) && heap.owns(large + 700 * kMega - 1));
  large[700 * kMega - 1] = 1;
  EXPECT_TRUE(heap.isSound());
  heap.release(large);
  heap.trim(0);
  EXPECT_LE(heap.mappedBytes(), 32 * kMega);
  EXPECT_TRUE(heap.owns(small));
  EXPECT_TRUE(heap.isSound());
}

TEST(BlockHeap, LivesWhereAddressSpaceIsShort) {
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0;
  ASSERT_TRUE(statm >> pages);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  BlockHeap heap(4096 * kMega);
  const rlimit tight{pages * 4096 + 24 * kMega, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  void* block = heap.allocate(4 * kMega);  // whose region would be larger than what is left
  void* none = heap.allocate(64 * kMega);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(none, nullptr);
  EXPECT_LE(heap.mappedBytes(), 24 * kMega);
  EXPECT_TRUE(heap.isSound());
}

TEST(BlockHeap, TrimGivesPagesBackAndKeepsTheBlocks) {
  BlockHeap heap(64 * kMega);
  auto* block = static_cast<unsigned char*>(heap.allocate(4 * kMega));
  void* small = heap.allocate(64);
  std::memset(block, 7, 4 * kMega);
  heap.release(block);
  EXPECT_GE(heap.idleBytes(), 4 * kMega);
  heap.trim(8 * kMega);
  EXPECT_GE(heap.idleBytes(), 4 * kMega);
  heap.trim(0);
  EXPECT_EQ(heap.idleBytes(), 0u);
  auto* again = static_cast<unsigned char*>(heap.allocate(4 * kMega));
  EXPECT_EQ(again, block);
  EXPECT_EQ(again[2 * kMega], 0);
  EXPECT_TRUE(heap.isSound());
  heap.release(small);
  heap.release(again);
  EXPECT_EQ(heap.usedBytes(), 0u);
}

TEST(BlockHeap, BlocksNeverOverlap) {
  BlockHeap heap(256 * kMega);
  std::mt19937 random(7);
  std::map<unsigned char*, std::pair<size_t, unsigned char>> held;
  auto release = [&](auto it) {
    const auto [size, mark] = it->second;
    EXPECT_EQ(it->first[0], mark);
    EXPECT_EQ(it->first[size / 2], mark);
    EXPECT_EQ(it->first[size - 1], mark);
    heap.release(it->first);
    held.erase(it);
  };
  for (int step = 0; step < 20000; ++step) {
    if (held.size() < 40 && random() % 2 == 0) {
      const size_t size = 1 + random() % (size_t{1} << (8 + random() % 14));
      auto* block = static_cast<unsigned char*>(heap.allocate(size));
      ASSERT_NE(block, nullptr);
      const auto mark = static_cast<unsigned char>(step);
      block[0] = block[size / 2] = block[size - 1] = mark;
      held[block] = {size, mark};
    } else if (!held.empty()) {
      release(std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size())));
    }
    if (step % 1000 == 0) heap.trim(step % 2000 == 0 ? 0 : random() % (8 * kMega));
    if (step % 100 == 0) {
      ASSERT_TRUE(heap.isSound()) << "step " << step;
    }
  }
  while (!held.empty()) release(held.begin());
  EXPECT_TRUE(heap.isSound());
  EXPECT_EQ(heap.usedBytes(), 0u);
}

}  // namespace
}  // namespace kintsugi
