// What a plan's run asks of its device, and when (docs/adr/0015-targets.md).
#include "runtime/native_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ir/liveness.h"
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
void fillWithNumber(void* const* memory, const int64_t* /*numbers*/, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    static_cast<float*>(memory[1])[i] = static_cast<float>(*static_cast<const double*>(memory[0]));
}
// The last address is where a kernel says that an index was out of range.
void outside(void* const* memory, const int64_t* /*numbers*/, int64_t /*begin*/, int64_t /*end*/) {
  *static_cast<uint8_t*>(memory[1]) = 1;
}
void inside(void* const* memory, const int64_t* numbers, int64_t begin, int64_t end) {
  fillWithThree(memory, numbers, begin, end);
}

// `%3 = %2.index_add_(0, %0, %1, alpha=1)`
std::unique_ptr<torchapi::AtenCall> indexAdd() {
  ir::Trace trace;
  const ir::Type tensor{ir::TypeKind::kTensor, ir::kNone};
  trace.values.assign(3, tensor);
  const ir::Operand operands[] = {ir::Operand::value(2), ir::Operand::integer(0), ir::Operand::value(0),
                                  ir::Operand::value(1), ir::Operand::integer(1)};
  const size_t at = trace.append(ir::Op::kAten, operands, {&tensor, 1}, ir::kNone);
  trace.code[at].opName = trace.internOpName("aten.index_add_.default");
  ir::Liveness liveness;
  liveness.lastUse.assign(trace.values.size(), ir::kNone);
  std::string reason;
  auto call = torchapi::AtenCall::make(trace, static_cast<uint32_t>(at), liveness, reason);
  EXPECT_NE(call, nullptr) << reason;
  return call;
}

class Devices : public testing::Test {
 protected:
  Devices() {
    device.memoryCounts = {{fillWithThree, 1}, {doubled, 2}, {fillWithExtent, 1},
                           {outside, 2},       {inside, 2},  {fillWithNumber, 2}};
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

TEST_F(Devices, ANumberOfTheFrameIsAParameterOfItsLaunch) {
  auto plan = planOn(2);
  plan->inputs.push_back({.kind = ValueKind::kFloat});
  addKernel(*plan, fillWithNumber, {0, 1}, {madeFloats(1, 2)}, {2}).values = {0};
  plan->outputs = {1};
  runner.setPlan(std::move(plan));
  Results first(1), second(1);
  Value number;
  number.kind = ValueKind::kFloat;
  number.f = 7;
  ASSERT_EQ(runner.run({&number, 1}, first.values), Status::kOk);
  number.f = 9;  // the frame has another number before the first launch is run
  ASSERT_EQ(runner.run({&number, 1}, second.values), Status::kOk);
  EXPECT_EQ(device.synchronizations, 0u);
  device.synchronize();
  EXPECT_EQ(first.at(0, 0), 7);
  EXPECT_EQ(second.at(0, 1), 9);
}

TEST_F(Devices, AConvolutionIsTheOneThatTheDeviceHasMade) {
  EXPECT_FALSE(device.hasConvolutions());
  EXPECT_EQ(device.makeConvolution({}), nullptr);
  static size_t runs = 0;
  runs = 0;
  device.convolution = [](FakeDevice& own, void* tensor) {
    ++runs;
    void* made = own.newTensor(madeFloats(0, 4).layout);
    void* const memory[] = {torchapi::dataPointer(tensor), torchapi::dataPointer(made)};
    const int64_t numbers[] = {4};
    own.launch({.function = doubled, .numbers = numbers, .memory = memory, .count = 4});
    return made;
  };
  ASSERT_TRUE(device.hasConvolutions());
  auto plan = planOn(2);
  addKernel(*plan, fillWithThree, {0}, {madeFloats(0, 4)}, {4});
  torchapi::ConvolutionForm form;
  form.input = 0;
  form.result = 1;
  plan->calls.emplace_back().convolution = plan->device->makeConvolution(std::move(form));
  addStep(*plan, NativeStepKind::kCall, 0, {0});
  plan->outputs = {1};
  Results results(1);
  ASSERT_EQ(run(std::move(plan), results), Status::kOk);
  EXPECT_EQ(runs, 1u);
  EXPECT_EQ(device.synchronizations, 0u);
  device.synchronize();
  EXPECT_EQ(results.at(0, 3), 6);
}

// A tensor in the memory of the processor, which a device sees, too.
struct Given {
  template <class T>
  Given(ir::DType dtype, std::vector<int64_t> sizes, const std::vector<T>& numbers) {
    ir::TensorLayout layout;
    layout.strides = ir::packedStrides(sizes);
    layout.sizes = std::move(sizes);
    layout.dtype = dtype;
    value.kind = ValueKind::kTensor;
    value.tensor = torchapi::newTensor(layout);
    std::memcpy(torchapi::dataPointer(value.tensor), numbers.data(), numbers.size() * sizeof(T));
  }
  ~Given() { torchapi::clear(value); }
  Given(const Given&) = delete;
  Value value;
};

// `target = full((3, 2), 3); target.index_add_(0, index, source)`
TEST_F(Devices, UpdatesOfRowsAreTheDevices) {
  const auto planned = [this] {
    auto plan = planOn(4);
    plan->inputs.resize(2);
    NativeMade target = madeFloats(2, 6);
    target.layout.sizes = {3, 2};
    target.layout.strides = {2, 1};
    addKernel(*plan, fillWithThree, {2}, {target}, {6});
    NativeCall& call = plan->calls.emplace_back();
    call.inPlace = indexAdd();
    call.target = 2;
    call.lastLook = true;
    call.rows = NativeCall::Rows{.update = {}, .index = 0, .source = 1, .result = 3};
    addStep(*plan, NativeStepKind::kCall, 0, {2});
    plan->outputs = {3};
    return plan;
  };
  device.holdsTensors = device.keepsTensors = false;
  const Given good(ir::DType::kI64, {2}, std::vector<int64_t>{2, 2});
  const Given bad(ir::DType::kI64, {2}, std::vector<int64_t>{0, 3});
  const Given source(ir::DType::kF32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  Results results(1), none(1);
  runner.setPlan(planned());
  const Value inputs[] = {good.value, source.value}, wrong[] = {bad.value, source.value};
  ASSERT_EQ(runner.run(inputs, results.values), Status::kOk);
  EXPECT_EQ(device.updates, 1u);
  device.synchronize();
  EXPECT_EQ(results.at(0, 0), 3);
  EXPECT_EQ(results.at(0, 4), 3 + 1 + 3);
  EXPECT_EQ(results.at(0, 5), 3 + 2 + 4);
  EXPECT_NE(runner.run(wrong, none.values), Status::kOk);
  EXPECT_EQ(device.updates, 2u);
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
