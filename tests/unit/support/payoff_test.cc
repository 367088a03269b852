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

TEST(Payoff, WhatIsHalfAsFastIsSeenByTwoPairs) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  EXPECT_EQ(calls(payoff, {always(10), always(20), {}}, 10),
            "tttt"
            "tete"
            "ee");
}

TEST(Payoff, WhatIsFasterStays) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  EXPECT_EQ(calls(payoff, {always(10), always(9), {}}, 10),
            "tttt"
            "tete"
            "tt");
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, ASmallDifferenceTakesAllPairs) {
  Payoff slower, equal;
  slower.addEvidence(Payoff::kSteps);
  equal.addEvidence(Payoff::kSteps);
  calls(slower, {always(100), always(106), {}}, 20);
  calls(equal, {always(100), always(102), {}}, 20);
  EXPECT_TRUE(slower.prefersEager());
  EXPECT_TRUE(equal.prefersTraces());
}

TEST(Payoff, OneSlowCallDecidesNothing) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  const World world{always(10), [](int call) { return call == 6 ? 3500u : 9u; }, {}};
  calls(payoff, world, 24);
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, OneSlowCallInEagerModeDecidesNothing) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  calls(payoff, {[](int call) { return call == 5 ? 3500u : 10u; }, always(30), {}}, 24);
  EXPECT_TRUE(payoff.prefersEager());
}

TEST(Payoff, ARecordedCallSaysLittle) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  calls(payoff, {always(10), [](int call) { return call == 4 ? 900u : 9u; }, {.recorded = true}}, 24);
  EXPECT_TRUE(payoff.prefersTraces());
  Payoff always900;
  always900.addEvidence(Payoff::kSteps);
  calls(always900, {always(10), always(900), {.recorded = true}}, 10);
  EXPECT_TRUE(always900.prefersEager());
}

TEST(Payoff, NativeCodeThatIsNotReadyIsWaitedFor) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  World world{always(100), always(110), {.nativePending = true}};
  calls(payoff, world, 20);
  EXPECT_FALSE(payoff.prefersEager());
  world.along = always(60);
  world.sample.nativePending = false;
  calls(payoff, world, 40);
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, WaitingForNativeCodeHasAnEnd) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  calls(payoff, {always(100), always(110), {.nativePending = true}}, 100'000);
  EXPECT_TRUE(payoff.prefersEager());
}

TEST(Payoff, CallsWaitForNativeCodeInEagerMode) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  const World slower{always(100), always(110), {.nativePending = true}};
  EXPECT_EQ(calls(payoff, slower, 36), "tttt" + std::string("tetetete") + std::string(16, 'e') + "tetetete");
  const std::string ways = calls(payoff, slower, 2000);
  EXPECT_LE(std::count(ways.begin(), ways.end(), 't'), 4 * 7);
}

TEST(Payoff, TheTracesAreTriedAgain) {
  Payoff payoff;
  payoff.addEvidence(Payoff::kSteps);
  const World slow{always(10), always(20), {}};
  calls(payoff, slow, 8);
  ASSERT_TRUE(payoff.prefersEager());
  const std::string ways = calls(payoff, slow, 4000);
  const auto tried = std::count(ways.begin(), ways.end(), 't');
  EXPECT_GE(tried, 2);
  EXPECT_LE(tried, 10);  // what they take longer is a hundredth of the whole at most
  calls(payoff, {always(10), always(5), {}}, 20000);
  EXPECT_TRUE(payoff.prefersTraces());
}

TEST(Payoff, DoubtsAddUpAndPatienceGrows) {
  Payoff payoff;
  for (uint64_t k = 0; k + 1 < Payoff::kDecisive; ++k) payoff.addEvidence(Payoff::kExit);
  EXPECT_TRUE(payoff.prefersTraces());
  payoff.addEvidence(Payoff::kExit);
  EXPECT_FALSE(payoff.prefersTraces());
  calls(payoff, {always(10), always(9), {}}, 20);
  ASSERT_TRUE(payoff.prefersTraces());
  payoff.addEvidence(Payoff::kSteps);
  EXPECT_TRUE(payoff.prefersTraces());
  payoff.addEvidence(Payoff::kSteps);
  EXPECT_FALSE(payoff.prefersTraces());
}

}  // namespace
}  // namespace kintsugi
