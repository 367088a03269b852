#include "runtime/native_runner.h"

#include <algorithm>
#include <utility>

#include "diag/events.h"
#include "runtime/native_steps.h"
#include "support/check.h"
#include "support/contain.h"
#include "support/fault.h"
#include "torchapi/global_state.h"
#include "torchapi/grad_node.h"
#include "torchapi/op_effects.h"
#include "torchapi/run_memory.h"

namespace kintsugi::runtime {

using torchapi::Value;
using torchapi::ValueKind;

namespace {

// Is the memory of each written input disjoint from all other inputs?
bool areDisjoint(const NativePlan& plan, const std::vector<torchapi::MemoryExtent>& extents) {
  struct Place {
    torchapi::MemoryExtent extent;
    bool written = false;
  };
  std::vector<Place> places;
  for (const torchapi::MemoryExtent& extent : extents) {
    places.push_back({extent});
  }
  for (const NativePlan::Written& written : plan.written) {
    places[written.slot].written = true;
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.extent.begin < b.extent.begin; });
  const char* end = nullptr;         // of all so far
  const char* writtenEnd = nullptr;  // of those that are written to
  for (const Place& place : places) {
    if (place.extent.begin == place.extent.end) {
      continue;
    }
    if (place.extent.begin < (place.written ? end : writtenEnd)) {
      return false;
    }
    end = std::max(end, place.extent.end);
    writtenEnd = place.written ? std::max(writtenEnd, place.extent.end) : writtenEnd;
  }
  return true;
}

bool mayWrite(const NativePlan& plan, NativeFrame& frame) {
  if (plan.written.empty()) {
    return true;
  }
  for (const NativePlan::Written& written : plan.written) {
    if (!torchapi::prepareWrite(frame.values[written.slot].tensor)) {
      return false;
    }
  }
  frame.extents.clear();
  for (size_t k = 0; k < plan.inputs.size(); ++k) {
    const Value& value = frame.values[k];
    frame.extents.push_back(value.kind == ValueKind::kTensor ? torchapi::memoryExtent(value.tensor)
                                                             : torchapi::MemoryExtent());
  }
  if (frame.extents == frame.fitExtents) {
    return true;
  }
  if (!areDisjoint(plan, frame.extents)) {
    return false;
  }
  std::swap(frame.extents, frame.fitExtents);
  return true;
}

void updateMinimum(std::atomic<uint64_t>& least, uint64_t time) {
  uint64_t seen = least.load(std::memory_order_relaxed);
  while (time < seen && !least.compare_exchange_weak(seen, time, std::memory_order_relaxed)) {
  }
}

bool fitsInput(const NativePlan::Input& wanted, const Value& input, bool grad) {
  if (input.kind != wanted.kind) {
    return false;
  }
  if (wanted.kind != ValueKind::kTensor) {
    return true;
  }
  if (torchapi::hasTangent(input.tensor)) {
    return false;  // forward-mode derivatives are autograd's
  }
  return wanted.known
             ? torchapi::implMatches(input.tensor, wanted.info, true)
             : torchapi::isOrdinary(input.tensor) && !(grad && torchapi::tensorRequiresGrad(input.tensor));
}

bool fits(const NativePlan& plan, std::span<const Value> inputs) {
  const bool grad = plan.gradOn || (plan.gradOutside && torchapi::gradMode());
  if (inputs.size() != plan.inputs.size() || !torchapi::mayUseOwnKernels() ||
      (plan.inputsRequireGrad && grad)) {
    return false;
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!fitsInput(plan.inputs[k], inputs[k], grad)) {
      return false;
    }
  }
  return true;
}

}  // namespace

NativeRunner::NativeRunner() = default;
NativeRunner::~NativeRunner() {
  if (trials_ == nullptr) {
    delete plan_.load(std::memory_order_acquire);
  }
}

SegmentRunner::State NativeRunner::state() const {
  if (refused_.load(std::memory_order_acquire)) {
    return plain_.load(std::memory_order_relaxed) ? State::kPlain : State::kRefused;
  }
  return plan_.load(std::memory_order_acquire) != nullptr ? State::kReady : State::kWaiting;
}

void NativeRunner::setPlan(std::unique_ptr<const NativePlan> plan) {
  KINTSUGI_CHECK(plan != nullptr && plan_.load(std::memory_order_relaxed) == nullptr,
                 "a second plan, or none");
  plan_.store(plan.release(), std::memory_order_release);
}

void NativeRunner::setPlans(std::vector<std::unique_ptr<const NativePlan>> plans, uint32_t trials) {
  KINTSUGI_CHECK(plans.size() > 1 && trials_ == nullptr, plans.size(), " plans to choose from");
  auto made = std::make_unique<Trials>();
  made->times = std::vector<std::atomic<uint64_t>>(plans.size());
  for (std::atomic<uint64_t>& time : made->times) {
    time.store(kUnknownTime, std::memory_order_relaxed);
  }
  made->plans = std::move(plans);
  trials_ = std::move(made);
  trialsLeft_.store(trials * static_cast<uint32_t>(trials_->plans.size()), std::memory_order_relaxed);
  plan_.store(trials_->plans.front().get(), std::memory_order_release);
}

// Runs alternate between the plans, so that other load on the machine affects all of them equally.
SegmentRunner::Status NativeRunner::runTrial(uint32_t trial, std::span<const Value> inputs,
                                             std::span<Value> outputs) {
  const size_t which = (trial - 1) % trials_->plans.size();
  const uint64_t start = diag::events::nowNs();
  const Status status = runPlan(*trials_->plans[which], inputs, outputs);
  if (status == Status::kOk) {
    updateMinimum(trials_->times[which], diag::events::nowNs() - start);
  }
  if (trial == 1) {
    pickFastestPlan();
  }
  return status;
}

void NativeRunner::pickFastestPlan() {
  // A difference of one in so many is noise: the plan that needs no other code is kept. A larger number would
  // keep a variant that is not faster, a smaller one would miss gains of some percent.
  constexpr uint64_t kNoise = 32;
  std::vector<uint64_t> times;
  for (const std::atomic<uint64_t>& time : trials_->times) {
    times.push_back(time.load(std::memory_order_relaxed));
  }
  auto best = static_cast<size_t>(std::min_element(times.begin(), times.end()) - times.begin());
  best = times[0] != kUnknownTime && times[best] + times[best] / kNoise >= times[0] ? 0 : best;
  plan_.store(trials_->plans[best].get(), std::memory_order_release);
  {
    std::lock_guard lock(mutex_);
    idle_.clear();  // the others hold memory
  }
  planChosen(best, times);
}

std::unique_ptr<NativeFrame> NativeRunner::acquireFrame(const NativePlan& plan) {
  {
    std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& frame) { return frame->plan == &plan; });
    if (found != idle_.rend()) {
      std::swap(*found, idle_.back());
      std::unique_ptr<NativeFrame> frame = std::move(idle_.back());
      idle_.pop_back();
      return frame;
    }
  }
  return std::make_unique<NativeFrame>(plan);
}

void NativeRunner::releaseFrame(std::unique_ptr<NativeFrame> frame) {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(frame));
}

// A run that declines after it has begun has wasted its work. If runs keep doing so, more and more of them
// are replayed from the start (exponential back-off).
bool NativeRunner::isPausing() {
  uint32_t left = pause_.load(std::memory_order_relaxed);
  if (left == 0) [[likely]] {
    return false;
  }
  while (left != 0 && !pause_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return left != 0;
}

void NativeRunner::noteWastedRun() {
  // So many runs may be in vain before native code pauses, for 1, 3, 7 and at last 1,023 runs. With more of
  // the first, inputs that never fit cost a run each; with a longer pause, inputs that fit again are noticed
  // late.
  constexpr uint32_t kFree = 4, kMost = 10;
  const uint32_t times = wastedRuns_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (times > kFree) {
    pause_.store((1U << std::min(times - kFree, kMost)) - 1, std::memory_order_relaxed);
  }
}

SegmentRunner::Status NativeRunner::run(std::span<const Value> inputs, std::span<Value> outputs) {
  const NativePlan* plan = plan_.load(std::memory_order_acquire);
  if (refused_.load(std::memory_order_relaxed)) {
    return Status::kDeclined;
  }
  if (plan == nullptr) {
    observeInputs(inputs);
    codeNeeded();
    return Status::kDeclined;
  }
  if (isPausing() || !fits(*plan, inputs)) {
    return Status::kDeclined;
  }
  uint32_t trial = trialsLeft_.load(std::memory_order_relaxed);
  while (trial != 0 && !trialsLeft_.compare_exchange_weak(trial, trial - 1, std::memory_order_relaxed)) {
  }
  if (trial != 0) [[unlikely]] {
    return runTrial(trial, inputs, outputs);
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
    const uint64_t time = diag::events::nowNs() - start;
    updateMinimum(nativeTime_, time);
    lastTime_.store(time, std::memory_order_relaxed);
  }
  return status;
}

void NativeRunner::replayed(uint64_t nanoseconds) {
  updateMinimum(replayTime_, nanoseconds);
  const uint64_t native = lastTime_.exchange(kUnknownTime, std::memory_order_relaxed);
  if (native != kUnknownTime) {
    turnBalance_.fetch_add(native <= nanoseconds ? 1 : -1, std::memory_order_relaxed);
  }
  if (turnsLeft_.load(std::memory_order_relaxed) == 0) {
    compareWithReplay();
  }
}

void NativeRunner::compareWithReplay() {
  // Ways that differ by less than one in kClose are timed again, three times at most: more rounds run the
  // slower way for longer, fewer let noise decide. Native code that takes kFarSlower times as long needs no
  // second round; a smaller number would drop native code for one call that was disturbed.
  constexpr uint32_t kMostRounds = 3;
  constexpr uint64_t kClose = 12;
  constexpr uint64_t kFarSlower = 3;
  const uint64_t native = nativeTime_.load(std::memory_order_relaxed);
  const uint64_t replay = replayTime_.load(std::memory_order_relaxed);
  const bool clear = native < replay && replay - native >= native / kClose;
  const bool farSlower = native / kFarSlower > replay;
  if (native != kUnknownTime && !clear && !farSlower &&
      rounds_.fetch_add(1, std::memory_order_relaxed) < kMostRounds) {
    turnsLeft_.store(2 * turns_, std::memory_order_relaxed);
    return;
  }
  const bool lostMost = turnBalance_.load(std::memory_order_relaxed) < 0;
  if (native != kUnknownTime && native > replay && lostMost &&
      !refused_.exchange(true, std::memory_order_acq_rel)) {
    replayIsFaster(native, replay);
  }
}

SegmentRunner::Status NativeRunner::runPlan(const NativePlan& plan, std::span<const Value> inputs,
                                            std::span<Value> outputs) {
  const torchapi::RunMemoryScope memory;  // a backward may run on its own
  std::unique_ptr<NativeFrame> frame = acquireFrame(plan);
  std::copy(inputs.begin(), inputs.end(), frame->values.begin());  // borrowed
  bool done = false;
  frame->begun = false;
  const auto failure = contain([&] {
    faultPoint("native run");
    if (mayWrite(plan, *frame)) {
      const HeldInputs held(*frame);
      done = runSteps(plan, *frame);
    }
  });
  if (failure) [[unlikely]] {
    done = false;  // an operator's exception, or no memory: replay will raise it
    if (failure->isCheck) failed(failure->text);
  }
  for (size_t k = 0; done && k < plan.written.size(); ++k) {
    torchapi::countWrites(inputs[plan.written[k].slot].tensor, plan.written[k].times);
  }
  for (size_t k = 0; done && k < outputs.size(); ++k) {
    if (plan.outputs[k] == ir::kNone) {
      outputs[k].kind = ValueKind::kNone;
      continue;
    }
    outputs[k] = frame->values[plan.outputs[k]];
    if (outputs[k].kind == ValueKind::kTensor) {
      torchapi::retainTensor(outputs[k].tensor);
    }
  }
  for (size_t k = 0; done && k < plan.versions.size(); ++k) {
    const ir::ResultVersion& version = plan.versions[k];
    const Value& output = outputs[version.output];
    if (output.kind != ValueKind::kTensor) continue;
    if (version.isOwn) {
      torchapi::raiseVersion(output.tensor, version.writes);
    } else {
      torchapi::countAsViewedBefore(output.tensor, version.writes);
    }
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    frame->values[k].kind = ValueKind::kEmpty;
  }
  // All other slots have been dropped by the steps.
  for (const uint32_t slot : plan.outputs) {
    if (done && slot != ir::kNone) {
      torchapi::clear(frame->values[slot]);
    }
  }
  for (size_t k = 0; !done && k < frame->values.size(); ++k) {
    torchapi::clear(frame->values[k]);
  }
  frame->steady = done;
  const bool wasted = !done && frame->begun;
  releaseFrame(std::move(frame));
  if (wasted) {
    noteWastedRun();
  }
  if (done) {
    if (wastedRuns_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      wastedRuns_.store(0, std::memory_order_relaxed);
    }
    runs_.fetch_add(1, std::memory_order_relaxed);
    if (plan.gradModeAfter) {
      torchapi::setGradMode(*plan.gradModeAfter);
    }
  }
  return done ? Status::kOk : Status::kDeclined;
}

}  // namespace kintsugi::runtime
