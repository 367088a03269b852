// What a plan's run asks of its device, and when (docs/adr/0015-targets.md).
#include "runtime/native_device.h"

#include <gtest/gtest.h>

#include "unit/runtime/fake_device.h"
#include "unit/runtime/plans.h"

namespace kintsugi::runtime::test {
namespace {

using Status = SegmentRunner::Status;

void fillWithThree(void* const* memory, const int64_t* /*numbers*/, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) static_cast<float*>(memory[0])[i] = 3;
}
void doubled(void* const* memory, const int64_t* /*numbers*/, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    static_cast<float*>(memory[1])[i] = 2 * static_cast<const float*>(memory[0])[i];
}
void fillWithExtent(void* const* memory, const int64_t* numbers, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) static_cast<float*>(memory[0])[i] = static_cast<float>(numbers[0]);
}
// The last address is where a kernel says that an index was out of range.
void outside(void* const* memory, const int64_t* /*numbers*/, int64_t /*begin*/, int64_t /*end*/) {
  *static_cast<uint8_t*>(memory[1]) = 1;
}
void inside(void* const* memory, const int64_t* numbers, int64_t begin, int64_t end) {
  fillWithThree(memory, numbers, begin, end);
}

class Devices : public testing::Test {
 protected:
  Devices() {
    device.memoryCounts = {{fillWithThree, 1}, {doubled, 2}, {fillWithExtent, 1}, {outside, 2}, {inside, 2}};
  }

  std::unique_ptr<NativePlan> planOn(size_t slots) {
    auto plan = emptyPlan(slots);
    plan->device = &device;
    return plan;
  }
  Status run(std::unique_ptr<NativePlan> plan, Results& results) {
    runner.setPlan(std::move(plan));
    return runner.run({}, results.values);
  }

  FakeDevice device;
  FakeRunner runner;  // its frames hold tensors of the device
};

TEST_F(Devices, KernelsRunInTheOrderOfTheirLaunchesAndResultsAreThereAfterSynchronize) {
  auto plan = planOn(2);
  addKernel(*plan, fillWithThree, {0}, {madeFloats(0, 4)}, {4});
  addKernel(*plan, doubled, {0, 1}, {madeFloats(1, 4)}, {4}, {0});
  plan->outputs = {1};
  Results results(1);
  ASSERT_EQ(run(std::move(plan), results), Status::kOk);
  EXPECT_EQ(device.launches, 2u);
  EXPECT_EQ(device.tensors, 2u);
  EXPECT_EQ(device.synchronizations, 0u) << "a run that reads nothing waits for nothing";
  EXPECT_NE(results.at(0, 3), 6);
  device.synchronize();
  EXPECT_EQ(results.at(0, 0), 6);
  EXPECT_EQ(results.at(0, 3), 6);
}

TEST_F(Devices, WhatALaunchPointsToIsReadBeforeItReturns) {
  // Both kernels take their numbers from the same vector of the frame.
  auto plan = planOn(2);
  plan->sizeCount = 2;
  plan->bindings.front().sums = {{0, NativeSum{{{5, {}}}}}, {1, NativeSum{{{7, {}}}}}};
  addKernel(*plan, fillWithExtent, {0}, {madeFloats(0, 8)}, {0}).patches = {{0, 0}};
  addKernel(*plan, fillWithExtent, {1}, {madeFloats(1, 8)}, {0}).patches = {{0, 1}};
  plan->outputs = {0, 1};
  Results results(2);
  ASSERT_EQ(run(std::move(plan), results), Status::kOk);
  device.synchronize();
  EXPECT_EQ(results.at(0, 4), 5);
  EXPECT_EQ(results.at(1, 6), 7);
}

TEST_F(Devices, ANumberIsReadFromATensorAfterSynchronize) {
  auto plan = planOn(2);
  addKernel(*plan, fillWithThree, {0}, {madeFloats(0, 1)}, {1});
  plan->reads.push_back({{0, 0}, NativeRead::Type::kF32, 1});
  addStep(*plan, NativeStepKind::kRead, 0, {0});
  plan->outputs = {1};
  Results results(1);
  ASSERT_EQ(run(std::move(plan), results), Status::kOk);
  EXPECT_EQ(device.synchronizations, 1u);
  ASSERT_EQ(results.values[0].kind, ValueKind::kFloat);
  EXPECT_EQ(results.values[0].f, 3);
}

TEST_F(Devices, AKernelThatChecksIsWaitedForBeforeItsAnswerIsRead) {
  for (const bool good : {true, false}) {
    FakeRunner own;
    auto plan = planOn(1);
    addKernel(*plan, good ? inside : outside, {0}, {madeFloats(0, 2)}, {2}).checks = true;
    plan->outputs = {0};
    own.setPlan(std::move(plan));
    Results results(1);
    const size_t before = device.synchronizations;
    EXPECT_EQ(own.run({}, results.values), good ? Status::kOk : Status::kDeclined);
    EXPECT_EQ(device.synchronizations, before + 1);
    if (good) {
      EXPECT_EQ(results.at(0, 1), 3);
    }
  }
}

TEST_F(Devices, ProductsAreTheDevices) {
  auto plan = planOn(2);
  addKernel(*plan, fillWithThree, {0}, {madeFloats(0, 4)}, {4});
  NativeProduct product{.left = {0, 0}, .right = {0, 0}, .result = {1, 0}, .made = {madeFloats(1, 4)}};
  product.shape = {.m = 2, .n = 2, .k = 2, .leftStride = 2, .rightStride = 2, .resultStride = 2};
  plan->products.push_back(std::move(product));
  addStep(*plan, NativeStepKind::kProduct, 0, {0});
  plan->outputs = {1};
  Results results(1);
  ASSERT_EQ(run(std::move(plan), results), Status::kOk);
  EXPECT_EQ(device.products, 1u);
  EXPECT_NE(results.at(0, 0), 18);
  device.synchronize();
  EXPECT_EQ(results.at(0, 0), 18);
}

TEST_F(Devices, SteadyStepsAreLaunchedOnce) {
  auto plan = planOn(2);
  addKernel(*plan, fillWithThree, {0}, {madeFloats(0, 4)}, {4});
  addKernel(*plan, doubled, {0, 1}, {madeFloats(1, 4)}, {4});
  plan->steadySteps = 1;
  plan->steadySlots = {0};
  plan->outputs = {1};
  Results results(1);
  ASSERT_EQ(run(std::move(plan), results), Status::kOk);
  results.clear();
  ASSERT_EQ(runner.run({}, results.values), Status::kOk);
  EXPECT_EQ(device.launches, 3u);
  device.synchronize();
  EXPECT_EQ(results.at(0, 0), 6);
}

TEST_F(Devices, KeptMemoryIsUsedAgainUnlessSomebodyHoldsIt) {
  device.keepsTensors = false;
  auto plan = planOn(1);
  NativeMade made = madeFloats(0, 4);
  made.place = 0;
  plan->keptCount = 1;
  addKernel(*plan, fillWithThree, {0}, {made}, {4});
  plan->outputs = {0};
  Results first(1), second(1), third(1);
  ASSERT_EQ(run(std::move(plan), first), Status::kOk);
  device.synchronize();
  ASSERT_EQ(runner.run({}, second.values), Status::kOk);
  EXPECT_EQ(device.tensors, 2u) << "the first result is still held";
  device.synchronize();
  second.clear();
  ASSERT_EQ(runner.run({}, third.values), Status::kOk);
  EXPECT_EQ(device.tensors, 2u);
  device.synchronize();  // the launch has the address of a tensor that is freed with `third`
}

TEST_F(Devices, TheProcessorRunsARangeBeforeLaunchReturns) {
  std::vector<float> elements(5000, 0);
  void* memory[] = {elements.data()};
  const int64_t numbers[] = {5000};
  processor().launch({fillWithThree, numbers, memory, 5000, 100});
  EXPECT_EQ(elements, std::vector<float>(5000, 3));
  processor().synchronize();
}

}  // namespace
}  // namespace kintsugi::runtime::test
