#include "support/backoff.h"

#include <gtest/gtest.h>

#include <vector>

namespace kintsugi {
namespace {

uint32_t passed(Backoff& backoff) {
  uint32_t count = 0;
  while (backoff.passes()) ++count;
  return count;
}

TEST(Backoff, DoublesUpToALimit) {
  Backoff backoff;
  std::vector<uint32_t> counts;
  for (int i = 0; i < 13; ++i) {
    backoff.failed();
    counts.push_back(passed(backoff));
  }
  EXPECT_EQ(counts, (std::vector<uint32_t>{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1023, 1023}));
}

TEST(Backoff, BeginsAnewAfterASuccess) {
  Backoff backoff(1);
  EXPECT_FALSE(backoff.passes());
  backoff.failed();
  EXPECT_EQ(passed(backoff), 1u);
  backoff.failed();
  EXPECT_EQ(passed(backoff), 3u);
  backoff.succeeded();
  EXPECT_FALSE(backoff.passes());
  backoff.failed();
  EXPECT_EQ(passed(backoff), 1u);
}

}  // namespace
}  // namespace kintsugi
