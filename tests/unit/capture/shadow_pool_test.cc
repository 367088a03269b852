#include "capture/shadow_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace kintsugi::capture::test {
namespace {

// Sanitizers and debug builds get each piece from operator new.
#if !defined(__SANITIZE_ADDRESS__) && !defined(KINTSUGI_DEBUG)

TEST(ShadowPool, APieceThatWasGivenBackIsTakenAgain) {
  ShadowPool pool;
  void* kept = pool.take(16);
  void* piece = pool.take(40);
  pool.give(piece, 40);
  EXPECT_EQ(pool.take(48), piece);  // of the same size in steps
  EXPECT_EQ(pool.out(), 2U);
  pool.give(piece, 48);
  pool.give(kept, 16);
  EXPECT_EQ(pool.out(), 0U);
}

TEST(ShadowPool, PiecesDoNotOverlap) {
  ShadowPool pool;
  std::set<std::byte*> ends;
  std::vector<std::byte*> pieces;
  for (int i = 0; i < 2000; ++i) pieces.push_back(static_cast<std::byte*>(pool.take(ShadowPool::kLargest)));
  EXPECT_GT(pool.blocks(), 1U);
  for (std::byte* piece : pieces) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % ShadowPool::kStep, 0U);
    const auto next = ends.upper_bound(piece);
    EXPECT_TRUE(next == ends.end() || *next - piece >= static_cast<std::ptrdiff_t>(ShadowPool::kLargest));
    ends.insert(piece + ShadowPool::kLargest);
  }
  for (std::byte* piece : pieces) pool.give(piece, ShadowPool::kLargest);
  EXPECT_EQ(pool.blocks(), 1U);  // one is kept
}

#endif

TEST(ShadowPool, LargePiecesComeFromOperatorNew) {
  ShadowPool pool;
  void* large = pool.take(ShadowPool::kLargest + 1);
  EXPECT_EQ(pool.out(), 0U);
  pool.give(large, ShadowPool::kLargest + 1);
}

TEST(ShadowPool, VectorsGiveBackWhatTheyTake) {
  const size_t before = shadowPool.out();
  {
    PooledVector<int> numbers;
    for (int i = 0; i < 1000; ++i) numbers.push_back(i);
    const PooledVector<int> copy = numbers;
    EXPECT_EQ(copy.back(), 999);
  }
  EXPECT_EQ(shadowPool.out(), before);
}

}  // namespace
}  // namespace kintsugi::capture::test
