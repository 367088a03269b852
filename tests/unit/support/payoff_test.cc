#include "support/payoff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

namespace kintsugi {
namespace {

using Mode = Payoff::Mode;

struct World {
  std::function<uint64_t(int call)> eager, along;
  Payoff::Sample sample;
};

// Makes calls, each of which takes as long as `world` says of its mode; 't' and 'e' for each.
std::string calls(Payoff& payoff, const World& world, int count) {
  std::string ways;
  for (int k = 0; k < count; ++k) {
    const Mode mode = payoff.next();
    ways += mode == Mode::kEager ? 'e' : 't';
    if (payoff.isUntimed()) continue;
    payoff.addSample(mode, mode == Mode::kEager ? world.eager(k) : world.along(k), world.sample);
  }
  return ways;
}

std::function<uint64_t(int)> always(uint64_t ns) {
  return [ns](int) { return ns; };
}

TEST(Payoff, WithoutDoubtNothingIsCompared) {
  Payoff payoff;
  EXPECT_TRUE(payoff.prefersTraces());
  EXPECT_EQ(calls(payoff, {always(10), always(1000), {}}, 5), "ttttt");
}

TEST(Payoff, WhatIsHalfAsFastIsSeenByThreeCallsInEachMode) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  EXPECT_EQ(calls(payoff, {always(10), always(20), {}}, 10),
            "tteettee"
            "ee");
}

TEST(Payoff, WhatIsFasterStays) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  EXPECT_EQ(calls(payoff, {always(10), always(8), {}}, 10),
            "tteettet"
            "tt");
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, WhatIsCloseGoesOnInTurns) {
  Payoff slower, equal;
  slower.addEvidence(Payoff::kSteps);
  equal.addEvidence(Payoff::kSteps);
  EXPECT_EQ(calls(slower, {always(100), always(107), {}}, 20),
            "tteette"
            "ette"
            "ette"
            "ete"
            "ee");
  EXPECT_TRUE(slower.prefersEager());
  calls(equal, {always(100), always(104), {}}, 20);
  EXPECT_FALSE(equal.prefersEager());
}

// Each call in one mode took longer than each in the other, by less than a quarter.
TEST(Payoff, AMiddlingDifferenceTakesMoreCallsAndMostOfThemAreFast) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  const std::string ways = calls(payoff, {always(100), always(120), {}}, 50);
  EXPECT_EQ(ways,
            "tteette"
            "eeeeeeee"
            "tt"
            "eeeeeeeeeee"
            "tt" +
                std::string(20, 'e'));
  EXPECT_TRUE(payoff.prefersEager());
}

// Noise of a few percent: no call is beyond those in the other mode.
TEST(Payoff, MediansDecideWhereTimesOverlap) {
  const auto noisy = [](uint64_t ns) {
    return [ns](int call) { return ns + static_cast<uint64_t>(call * 7 % 20); };
  };
  Payoff slower, equal;
  slower.addEvidence(Payoff::kSteps);
  equal.addEvidence(Payoff::kSteps);
  const std::string ways = calls(slower, {noisy(100), noisy(112), {}}, 100);
  calls(equal, {noisy(100), noisy(100), {}}, 100);
  EXPECT_TRUE(slower.prefersEager());
  EXPECT_FALSE(equal.prefersEager());
  EXPECT_LE(std::count(ways.begin(), ways.end(), 't'), 20);
}

TEST(Payoff, TheModeThatIsAheadMakesTheCalls) {
  const auto noisy = [](uint64_t ns) {
    return [ns](int call) { return ns + static_cast<uint64_t>(call * 7 % 50); };
  };
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  calls(payoff, {noisy(100), noisy(150), {}}, 8);
  const std::string ways = calls(payoff, {noisy(100), noisy(150), {}}, 30);
  EXPECT_GE(std::count(ways.begin(), ways.end(), 'e'), 22);
}

TEST(Payoff, TracesThatWinNarrowlyAreComparedAgain) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  calls(payoff, {always(100), always(98), {}}, 8);
  EXPECT_FALSE(payoff.prefersTraces());
  EXPECT_FALSE(payoff.prefersEager());
  EXPECT_EQ(calls(payoff, {always(100), always(98), {}}, 100), std::string(100, 't'));
  const std::string ways = calls(payoff, {always(100), always(140), {}}, 100);
  EXPECT_TRUE(payoff.prefersEager());
  EXPECT_LE(std::count(ways.begin(), ways.end(), 't'), 32);
}

TEST(Payoff, OneSlowCallDecidesNothing) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  const World world{always(10), [](int call) { return call == 5 ? 3500u : 8u; }, {}};
  calls(payoff, world, 100);
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, OneSlowCallInEagerModeDecidesNothing) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  calls(payoff, {[](int call) { return call == 2 ? 3500u : 10u; }, always(30), {}}, 100);
  EXPECT_TRUE(payoff.prefersEager());
}

TEST(Payoff, ARecordedCallSaysLittle) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  for (int k = 0; k < 200; ++k) {
    const Mode mode = payoff.next();
    const bool recorded = mode == Mode::kTraces && (k == 1 || k == 4);
    if (!payoff.isUntimed())
      payoff.addSample(mode, recorded ? 900 : mode == Mode::kEager ? 10 : 8, {.recorded = recorded});
  }
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, WhatKeepsBeingRecordedIsLeft) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  int calls = 0;
  for (; calls < 200 && !payoff.prefersEager(); ++calls) {
    const Mode mode = payoff.next();
    const bool traces = mode == Mode::kTraces;
    if (!payoff.isUntimed()) payoff.addSample(mode, traces ? 900 : 10, {.recorded = traces});
  }
  EXPECT_LT(calls, 80);
}

TEST(Payoff, NativeCodeThatHasBecomeReadyIsTried) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  for (int k = 0; k < 300 && !payoff.prefersEager(); ++k)
    calls(payoff, {always(100), always(300), {.nativePending = true}}, 1);
  ASSERT_TRUE(payoff.prefersEager());
  int made = 0;
  for (; made < 1000 && !payoff.asksForNative(); ++made) payoff.next();
  EXPECT_GE(made, 190);
  EXPECT_LT(made, 220);
  payoff.nativeIsReady();
  calls(payoff, {always(100), always(60), {}}, 10);
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, LongCallsGetNativeCodeAtOnce) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  for (int k = 0; k < 300 && !payoff.prefersEager(); ++k)
    calls(payoff, {always(2'000'000), always(3'000'000), {.nativePending = true}}, 1);
  ASSERT_TRUE(payoff.prefersEager());
  int made = 0;
  for (; made < 100 && !payoff.asksForNative(); ++made) payoff.next();
  EXPECT_LT(made, 20);
}

TEST(Payoff, NobodyAsksForNativeCodeThatIsNotMade) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  calls(payoff, {always(100), always(160), {}}, 20);
  ASSERT_TRUE(payoff.prefersEager());
  for (int k = 0; k < 64; ++k) {
    payoff.next();
    EXPECT_FALSE(payoff.asksForNative());
  }
}

TEST(Payoff, TheTracesAreTriedAgain) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  const World slow{always(10), always(20), {}};
  calls(payoff, slow, 8);
  ASSERT_TRUE(payoff.prefersEager());
  const std::string ways = calls(payoff, slow, 4000);
  const auto tried = std::count(ways.begin(), ways.end(), 't');
  EXPECT_GE(tried, 3);
  EXPECT_LE(tried, 15);  // what they take longer is a hundredth of the whole at most
  calls(payoff, {always(10), always(5), {}}, 20000);
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, DoubtsAddUpAndPatienceGrows) {
  Payoff payoff;
  for (uint64_t k = 0; k + 1 < Payoff::kDecisive; ++k) payoff.addEvidence(Payoff::kExit);
  EXPECT_TRUE(payoff.prefersTraces());
  payoff.addEvidence(Payoff::kExit);
  EXPECT_FALSE(payoff.prefersTraces());
  calls(payoff, {always(10), always(8), {}}, 20);
  ASSERT_TRUE(payoff.prefersTraces());
  payoff.addEvidence(Payoff::kSteps);
  EXPECT_TRUE(payoff.prefersTraces());
  payoff.addEvidence(Payoff::kSteps);
  EXPECT_FALSE(payoff.prefersTraces());
}

// Makes calls of which none along the traces finds one.
std::string misses(Payoff& payoff, int count) {
  std::string ways;
  for (int k = 0; k < count; ++k) {
    const Mode mode = payoff.next();
    ways += mode == Mode::kEager ? 'e' : 't';
    const bool timed = !payoff.isUntimed();
    if (mode == Mode::kTraces) payoff.missed();
    if (timed) payoff.addSample(mode, mode == Mode::kEager ? 100 : 105, {});
  }
  return ways;
}

TEST(Payoff, WhereTracesAreMissingTheyAreNotLookedFor) {
  Payoff payoff;
  EXPECT_EQ(misses(payoff, 12),
            "tttt"
            "t"
            "teett"
            "ee");
  EXPECT_TRUE(payoff.prefersEager());
  // A look now and then, each time after twice as many calls.
  const std::string ways = misses(payoff, 1000);
  EXPECT_GE(std::count(ways.begin(), ways.end(), 't'), 4);
  EXPECT_LE(std::count(ways.begin(), ways.end(), 't'), 40);
}

TEST(Payoff, ACallThatFindsATraceBeginsTheCountOfMissesAnew) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  int looks = 0;
  for (int k = 0; k < 60; ++k) {
    const Mode mode = payoff.next();
    const bool timed = !payoff.isUntimed();
    if (mode == Mode::kTraces) {
      if (++looks % 3 == 0) {
        payoff.hit();
      } else {
        payoff.missed();
      }
    }
    if (timed) payoff.addSample(mode, mode == Mode::kEager ? 101 : 100, {});
  }
  EXPECT_FALSE(payoff.prefersEager());
}

}  // namespace
}  // namespace kintsugi
