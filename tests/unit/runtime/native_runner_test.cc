// When native code runs a segment and when replay does, with plans by hand.
#include "runtime/native_runner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/check.h"
#include "unit/runtime/plans.h"

namespace kintsugi::runtime::test {
namespace {

using Status = SegmentRunner::Status;
using State = SegmentRunner::State;

constexpr uint64_t kSecond = 1'000'000'000;

int quickRuns = 0, slowRuns = 0;
bool isOutside = false;

void quick(void* const* /*memory*/, const int64_t* /*numbers*/, int64_t /*begin*/, int64_t /*end*/) {
  ++quickRuns;
}
void slow(void* const* /*memory*/, const int64_t* /*numbers*/, int64_t /*begin*/, int64_t /*end*/) {
  ++slowRuns;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}
void checked(void* const* memory, const int64_t* /*numbers*/, int64_t /*begin*/, int64_t /*end*/) {
  ++quickRuns;
  *static_cast<uint8_t*>(memory[1]) = isOutside ? 1 : 0;
}
void fails(void* const* /*memory*/, const int64_t* /*numbers*/, int64_t /*begin*/, int64_t /*end*/) {
  KINTSUGI_CHECK(false, "a kernel that a test makes fail");
}

std::unique_ptr<NativePlan> planOf(KernelFunction function) {
  auto plan = emptyPlan(1);
  addKernel(*plan, function, {0}, {madeFloats(0, 1)}, {1});
  plan->outputs = {0};
  return plan;
}

class Runs : public testing::Test {
 protected:
  Runs() {
    quickRuns = slowRuns = 0;
    isOutside = false;
  }
  Status run() {
    Results results(1);
    return runner.run({}, results.values);
  }
  FakeRunner runner;
};

TEST_F(Runs, WithoutAPlanTheyDeclineAndAskForCode) {
  EXPECT_EQ(runner.state(), State::kWaiting);
  EXPECT_EQ(run(), Status::kDeclined);
  EXPECT_EQ(runner.asked, 1u);
  runner.setPlan(planOf(quick));
  EXPECT_EQ(runner.state(), State::kReady);
  EXPECT_EQ(run(), Status::kOk);
  EXPECT_EQ(runner.runs(), 1u);
  EXPECT_EQ(runner.asked, 1u);
}

TEST_F(Runs, OfOtherInputsThanThePlansDecline) {
  auto plan = planOf(quick);
  plan->inputs.push_back({.kind = ValueKind::kInt});
  plan->slotCount = 2;
  runner.setPlan(std::move(plan));
  EXPECT_EQ(run(), Status::kDeclined);
  EXPECT_EQ(quickRuns, 0);
}

TEST_F(Runs, ASegmentOfCallsAloneIsPlain) {
  runner.leaveToCalls();
  EXPECT_EQ(runner.state(), State::kPlain);
  EXPECT_EQ(run(), Status::kDeclined);
  EXPECT_EQ(runner.asked, 0u);
}

TEST_F(Runs, AlternateWithReplayWhileTheyAreCompared) {
  runner.compare(2);
  runner.setPlan(planOf(quick));
  EXPECT_EQ(run(), Status::kOk);
  EXPECT_EQ(run(), Status::kMeasured);
  runner.replayed(kSecond);
  EXPECT_EQ(run(), Status::kOk);
  EXPECT_EQ(run(), Status::kMeasured);
  runner.replayed(kSecond);
  EXPECT_EQ(run(), Status::kOk) << "native code has won";
  EXPECT_EQ(run(), Status::kOk);
  EXPECT_TRUE(runner.lost.empty());
}

TEST_F(Runs, ReplayKeepsASegmentThatItRunsFaster) {
  runner.compare(2);
  runner.setPlan(planOf(slow));
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(run(), Status::kOk);
    EXPECT_EQ(run(), Status::kMeasured);
    runner.replayed(1000);
  }
  ASSERT_EQ(runner.lost.size(), 1u);
  EXPECT_GE(runner.lost[0].first, 5'000'000u);
  EXPECT_EQ(runner.lost[0].second, 1000u);
  EXPECT_EQ(runner.state(), State::kRefused);
  EXPECT_EQ(run(), Status::kDeclined);
  EXPECT_EQ(slowRuns, 2);
}

TEST_F(Runs, OneFastReplayDoesNotDecide) {
  runner.compare(3);
  runner.setPlan(planOf(slow));
  for (const uint64_t time : {uint64_t{1}, kSecond, kSecond}) {
    EXPECT_EQ(run(), Status::kOk);
    EXPECT_EQ(run(), Status::kMeasured);
    runner.replayed(time);
  }
  EXPECT_TRUE(runner.lost.empty()) << "native code won two turns of three";
  EXPECT_EQ(runner.state(), State::kReady);
}

TEST_F(Runs, OfSeveralPlansTheFastestIsKept) {
  std::vector<std::unique_ptr<const NativePlan>> plans;
  plans.push_back(planOf(slow));
  plans.push_back(planOf(quick));
  runner.setPlans(std::move(plans), 2);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(run(), Status::kOk);
  EXPECT_EQ(runner.chosen, std::vector<size_t>{1});
  EXPECT_EQ(slowRuns, 2);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(run(), Status::kOk);
  EXPECT_EQ(slowRuns, 2);
  EXPECT_EQ(quickRuns, 5);
}

TEST_F(Runs, TheFirstPlanIsKeptUnlessAnotherIsFaster) {
  std::vector<std::unique_ptr<const NativePlan>> plans;
  plans.push_back(planOf(quick));
  plans.push_back(planOf(slow));
  runner.setPlans(std::move(plans), 1);
  EXPECT_EQ(run(), Status::kOk);
  EXPECT_EQ(run(), Status::kOk);
  EXPECT_EQ(runner.chosen, std::vector<size_t>{0});
}

TEST_F(Runs, WastedOnesAreTriedLessAndLess) {
  auto plan = planOf(checked);
  plan->kernels[0].checks = true;
  runner.setPlan(std::move(plan));
  isOutside = true;
  std::vector<int> tried;
  for (int k = 1; k <= 34; ++k) {
    const int before = quickRuns;
    EXPECT_EQ(run(), Status::kDeclined);
    if (quickRuns > before) tried.push_back(k);
  }
  // Four are free; then 1, 3, 7, 15 runs are left to replay.
  EXPECT_EQ(tried, (std::vector<int>{1, 2, 3, 4, 5, 7, 11, 19}));
  isOutside = false;
  EXPECT_EQ(run(), Status::kOk);
  isOutside = true;
  for (int k = 0; k < 4; ++k) run();
  EXPECT_EQ(quickRuns, 8 + 1 + 4) << "a run that was whole begins the count anew";
}

TEST_F(Runs, AFailedCheckIsReportedAndDeclines) {
  runner.setPlan(planOf(fails));
  EXPECT_EQ(run(), Status::kDeclined);
  ASSERT_EQ(runner.failures.size(), 1u);
  EXPECT_NE(runner.failures[0].find("a kernel that a test makes fail"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::runtime::test
