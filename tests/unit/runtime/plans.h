// Plans by hand, of kernels that are functions of C++, and a runner without a driver behind it.
//
//   std::unique_ptr<NativePlan> plan = emptyPlan(1);
//   addKernel(*plan, fill, {0}, {madeFloats(0, 4)}, {4});
//   plan->outputs = {0};
//   FakeRunner runner;
//   runner.setPlan(std::move(plan));
//   Results results(1);
//   runner.run({}, results.values);
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/native_runner.h"

namespace kintsugi::runtime::test {

using torchapi::Value;
using torchapi::ValueKind;

inline std::unique_ptr<NativePlan> emptyPlan(size_t slots) {
  auto plan = std::make_unique<NativePlan>();
  plan->slotCount = slots;
  plan->bindings.emplace_back();  // of the inputs
  return plan;
}

inline NativeMade madeFloats(uint32_t slot, int64_t count) {
  NativeMade made{.slot = slot};
  made.layout.sizes = {count};
  made.layout.strides = {1};
  return made;
}

inline void addStep(NativePlan& plan, NativeStepKind kind, size_t index, std::vector<uint32_t> drops = {}) {
  plan.steps.push_back({kind, static_cast<uint32_t>(index), static_cast<uint32_t>(plan.drops.size()),
                        static_cast<uint32_t>(drops.size())});
  plan.drops.insert(plan.drops.end(), drops.begin(), drops.end());
}

inline NativeKernel& addKernel(NativePlan& plan, KernelFunction function, const std::vector<uint32_t>& slots,
                               std::vector<NativeMade> made, std::vector<int64_t> numbers,
                               std::vector<uint32_t> drops = {}) {
  NativeKernel kernel;
  kernel.function = function;
  for (const uint32_t slot : slots) kernel.memory.push_back({slot, 0});
  kernel.made = std::move(made);
  kernel.numbers = std::move(numbers);
  kernel.flat = true;
  plan.kernels.push_back(std::move(kernel));
  addStep(plan, NativeStepKind::kKernel, plan.kernels.size() - 1, std::move(drops));
  return plan.kernels.back();
}

// What a run gives back, freed with this.
struct Results {
  explicit Results(size_t count) : values(count) {}
  ~Results() { clear(); }
  Results(const Results&) = delete;
  void clear() {
    for (Value& value : values) torchapi::clear(value);
  }
  float at(size_t output, size_t element) const {
    return static_cast<const float*>(torchapi::dataPointer(values[output].tensor))[element];
  }
  std::vector<Value> values;
};

class FakeRunner : public NativeRunner {
 public:
  size_t asked = 0;  // for code
  std::vector<std::pair<uint64_t, uint64_t>> lost;
  std::vector<std::string> failures;
  std::vector<size_t> chosen;

 protected:
  void codeNeeded() override { ++asked; }
  void replayIsFaster(uint64_t native, uint64_t replay) override { lost.emplace_back(native, replay); }
  void failed(const std::string& text) override { failures.push_back(text); }
  void planChosen(size_t plan, std::span<const uint64_t> /*nanoseconds*/) override { chosen.push_back(plan); }
};

}  // namespace kintsugi::runtime::test
