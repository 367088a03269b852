#include "support/recording_budget.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1000 * kUs, kStart = 1000 * kMs;

// The first recordings, which are free; all but the first one are owed.
RecordingBudget spent(uint64_t ns) {
  RecordingBudget budget;
  for (uint32_t k = 0; k < RecordingBudget::kFree; ++k) {
    EXPECT_TRUE(budget.allows(kStart));
    budget.recorded(kStart, ns);
  }
  return budget;
}
constexpr uint64_t kOwed = RecordingBudget::kFree - 1;

TEST(RecordingBudget, WhatIsOwedIsPaidBackAsTimeGoesBy) {
  const RecordingBudget budget = spent(kMs);
  EXPECT_FALSE(budget.allows(kStart));
  EXPECT_FALSE(budget.allows(kStart + RecordingBudget::kShare * kOwed * kMs - kMs));
  EXPECT_TRUE(budget.allows(kStart + RecordingBudget::kShare * kOwed * kMs));
}

TEST(RecordingBudget, TheFirstOneIsNotOwed) {
  RecordingBudget budget;
  budget.recorded(kStart, 5000 * kMs);
  for (uint32_t k = 1; k < RecordingBudget::kFree; ++k) budget.recorded(kStart, kMs);
  EXPECT_TRUE(budget.allows(kStart + RecordingBudget::kShare * kOwed * kMs));
}

TEST(RecordingBudget, WhatTheCallTakesAnywayIsNotOwed) {
  RecordingBudget budget = spent(55 * kMs);
  EXPECT_FALSE(budget.allows(kStart + 50 * kMs));
  budget.ranPlain(50 * kMs);  // 5 ms are owed of each
  EXPECT_FALSE(budget.allows(kStart + 5 * kOwed * RecordingBudget::kShare * kMs - kMs));
  EXPECT_TRUE(budget.allows(kStart + 5 * kOwed * RecordingBudget::kShare * kMs));
}

TEST(RecordingBudget, ALongPauseDoesNotPayForAll) {
  RecordingBudget budget = spent(kMs);
  const uint64_t late = kStart + uint64_t{3600} * 1000 * kMs;
  int recordings = 0;
  while (budget.allows(late)) {
    budget.recorded(late, 10 * kMs);
    ASSERT_LT(++recordings, 20);
  }
  EXPECT_EQ(recordings, 11);
}

TEST(RecordingBudget, ARecordingThatIsFasterThanACallOwesNothing) {
  RecordingBudget budget;
  budget.ranPlain(10 * kMs);
  for (uint64_t k = 0; k < 50; ++k) {
    ASSERT_TRUE(budget.allows(kStart)) << k;
    budget.recorded(kStart, 9 * kMs);
  }
}

}  // namespace
}  // namespace kintsugi
