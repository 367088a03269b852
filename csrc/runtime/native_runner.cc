#include "runtime/native_runner.h"

#include <algorithm>

#include "diag/events.h"
#include "torchapi/op_effects.h"

namespace kintsugi::runtime {

using torchapi::Value;
using torchapi::ValueKind;

namespace {

// Operators see the grad mode that they were recorded in; afterwards it is what it was.
class GradModeScope {
 public:
  GradModeScope() : outside_(torchapi::gradMode()), now_(outside_) {}
  ~GradModeScope() { set(outside_); }
  GradModeScope(const GradModeScope&) = delete;

  void enter(GradSetting setting) {
    set(setting == GradSetting::kOutside ? outside_ : setting == GradSetting::kOn);
  }

 private:
  void set(bool mode) {
    if (mode != now_) {
      torchapi::setGradMode(mode);
      now_ = mode;
    }
  }

  const bool outside_;
  bool now_;
};

struct KernelRange {
  const NativeKernel* kernel;
  void* const* memory;
  static void run(void* context, int64_t begin, int64_t end) {
    const auto* range = static_cast<KernelRange*>(context);
    range->kernel->function(range->memory, range->kernel->numbers.data(), begin, end);
  }
};

void runKernel(const NativeKernel& kernel, NativeFrame& frame) {
  for (const NativeKernel::Made& made : kernel.made) {
    Value& value = frame.values[made.slot];
    value.tensor = torchapi::newTensor(made.layout);
    value.kind = ValueKind::kTensor;
  }
  frame.memory.resize(kernel.memory.size());
  for (size_t k = 0; k < kernel.memory.size(); ++k) {
    const NativeKernel::Memory& memory = kernel.memory[k];
    frame.memory[k] =
        static_cast<char*>(torchapi::dataPointer(frame.values[memory.slot].tensor)) + memory.offset;
  }
  if (kernel.count <= 0) {
    return;
  }
  KernelRange range{&kernel, frame.memory.data()};
  if (kernel.count <= kernel.grain) {
    KernelRange::run(&range, 0, kernel.count);
  } else {
    torchapi::parallelFor(kernel.count, kernel.grain, KernelRange::run, &range);
  }
}

void runView(const NativeView& view, NativeFrame& frame) {
  Value& value = frame.values[view.to];
  value.tensor = torchapi::aliasTensor(frame.values[view.from].tensor, view.layout, view.offset);
  value.kind = ValueKind::kTensor;
}

bool runCall(const NativeCall& call, NativeFrame& frame) {
  torchapi::AtenCall::Status status;
  if (call.whole) {
    status = call.call->run(frame.values.data(), frame.calls);
  } else {
    const torchapi::BelowAutograd scope;
    status = call.call->run(frame.values.data(), frame.calls);
  }
  if (status == torchapi::AtenCall::Status::kRaised) {
    frame.calls.dropError();
  }
  return status == torchapi::AtenCall::Status::kOk &&
         std::all_of(call.results.begin(), call.results.end(), [&](const NativeCall::Result& result) {
           const Value& value = frame.values[result.slot];
           return value.kind == ValueKind::kTensor && torchapi::hasLayout(value.tensor, result.layout);
         });
}

bool runSteps(const NativePlan& plan, NativeFrame& frame) {
  GradModeScope grad;
  for (const NativePlanStep& step : plan.steps) {
    switch (step.kind) {
      case NativeStepKind::kKernel:
        runKernel(plan.kernels[step.index], frame);
        break;
      case NativeStepKind::kView:
        runView(plan.views[step.index], frame);
        break;
      case NativeStepKind::kCall:
        grad.enter(plan.calls[step.index].grad);
        if (!runCall(plan.calls[step.index], frame)) {
          return false;
        }
        break;
    }
    for (uint32_t k = 0; k < step.dropCount; ++k) {
      torchapi::clear(frame.values[plan.drops[step.firstDrop + k]]);
    }
  }
  return true;
}

void keepLeast(std::atomic<uint64_t>& least, uint64_t time) {
  uint64_t seen = least.load(std::memory_order_relaxed);
  while (time < seen && !least.compare_exchange_weak(seen, time, std::memory_order_relaxed)) {
  }
}

bool fits(const NativePlan& plan, std::span<const Value> inputs) {
  if (inputs.size() != plan.inputs.size() || torchapi::autocastEnabled() ||
      (plan.inputsRequireGrad && (plan.gradOn || (plan.gradOutside && torchapi::gradMode())))) {
    return false;
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].kind != ValueKind::kTensor ||
        !torchapi::implMatches(inputs[k].tensor, plan.inputs[k], true)) {
      return false;
    }
  }
  return true;
}

}  // namespace

NativeRunner::NativeRunner() = default;
NativeRunner::~NativeRunner() { delete plan_.load(std::memory_order_acquire); }

SegmentRunner::State NativeRunner::state() const {
  if (refused_.load(std::memory_order_acquire)) {
    return State::kRefused;
  }
  return plan_.load(std::memory_order_acquire) != nullptr ? State::kReady : State::kWaiting;
}

void NativeRunner::setPlan(std::unique_ptr<const NativePlan> plan) {
  plan_.store(plan.release(), std::memory_order_release);
}

std::unique_ptr<NativeFrame> NativeRunner::take(const NativePlan& plan) {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<NativeFrame> frame = std::move(idle_.back());
      idle_.pop_back();
      return frame;
    }
  }
  auto frame = std::make_unique<NativeFrame>();
  frame->values.resize(plan.slotCount);
  return frame;
}

void NativeRunner::giveBack(std::unique_ptr<NativeFrame> frame) {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(frame));
}

SegmentRunner::Status NativeRunner::run(std::span<const Value> inputs, std::span<Value> outputs) {
  const NativePlan* plan = plan_.load(std::memory_order_acquire);
  if (refused_.load(std::memory_order_relaxed)) {
    return Status::kDeclined;
  }
  if (plan == nullptr) {
    wanted();
    return Status::kDeclined;
  }
  if (!fits(*plan, inputs)) {
    return Status::kDeclined;
  }
  uint32_t turns = turnsLeft_.load(std::memory_order_relaxed);
  if (turns == 0) [[likely]] {
    return runPlan(*plan, inputs, outputs);
  }
  while (turns != 0 && !turnsLeft_.compare_exchange_weak(turns, turns - 1, std::memory_order_relaxed)) {
  }
  if (turns % 2 != 0) {
    return Status::kMeasured;
  }
  const uint64_t start = diag::events::nowNs();
  const Status status = runPlan(*plan, inputs, outputs);
  if (status == Status::kOk) {
    keepLeast(nativeTime_, diag::events::nowNs() - start);
  }
  return status;
}

void NativeRunner::replayed(uint64_t nanoseconds) {
  keepLeast(replayTime_, nanoseconds);
  if (turnsLeft_.load(std::memory_order_relaxed) == 0) {
    judge();
  }
}

void NativeRunner::judge() {
  const uint64_t native = nativeTime_.load(std::memory_order_relaxed);
  const uint64_t replay = replayTime_.load(std::memory_order_relaxed);
  if (native != kUnknownTime && native > replay && !refused_.exchange(true, std::memory_order_acq_rel)) {
    lost(native, replay);
  }
}

SegmentRunner::Status NativeRunner::runPlan(const NativePlan& plan, std::span<const Value> inputs,
                                            std::span<Value> outputs) {
  std::unique_ptr<NativeFrame> frame = take(plan);
  std::copy(inputs.begin(), inputs.end(), frame->values.begin());  // borrowed
  bool done = false;
  try {
    done = runSteps(plan, *frame);
  } catch (...) {
    done = false;  // no memory: replay will say so
  }
  for (size_t k = 0; done && k < outputs.size(); ++k) {
    if (plan.outputs[k] == ir::kNone) {
      outputs[k].kind = ValueKind::kNone;
      continue;
    }
    outputs[k] = frame->values[plan.outputs[k]];
    torchapi::retainTensor(outputs[k].tensor);
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    frame->values[k].kind = ValueKind::kEmpty;
  }
  for (Value& value : frame->values) {
    torchapi::clear(value);
  }
  giveBack(std::move(frame));
  if (done) {
    runs_.fetch_add(1, std::memory_order_relaxed);
    if (plan.gradModeAfter) {
      torchapi::setGradMode(*plan.gradModeAfter);
    }
  }
  return done ? Status::kOk : Status::kDeclined;
}

}  // namespace kintsugi::runtime
