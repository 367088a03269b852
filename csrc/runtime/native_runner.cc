#include "runtime/native_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "diag/events.h"
#include "runtime/replay_program.h"
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

// Sets the grad mode that an operator was recorded in, and restores the thread's own.
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

const torchapi::TensorLayout& layoutOf(const NativeLayout& layout, NativeFrame& frame) {
  if (!layout.varies()) [[likely]] {
    return layout;
  }
  frame.layout = layout;
  for (const NativePatch& patch : layout.varying.sizes) {
    frame.layout.sizes[patch.at] = frame.sizes[patch.from];
  }
  for (const NativePatch& patch : layout.varying.strides) {
    frame.layout.strides[patch.at] = frame.sizes[patch.from];
  }
  return frame.layout;
}

int64_t sumOf(const NativeSum& sum, const NativeFrame& frame) {
  int64_t out = 0;
  for (const NativeSum::Term& term : sum.terms) {
    int64_t part = term.factor;
    for (const uint32_t at : term.parts) {
      part *= frame.sizes[at];
    }
    out += part;
  }
  return out;
}

bool loadSizes(const NativeBinding::Tensor& tensor, NativeFrame& frame) {
  const Value& value = frame.values[tensor.slot];
  if (value.kind != ValueKind::kTensor ||
      !torchapi::hasForm(value.tensor, tensor.dtype, tensor.rank, tensor.contiguous)) {
    return false;
  }
  for (const NativeBinding::Load& load : tensor.loads) {
    const int64_t number = load.stride ? torchapi::tensorStride(value.tensor, load.dim)
                                       : torchapi::tensorSize(value.tensor, load.dim);
    const bool ok =
        load.expected != NativeBinding::Load::kVaries ? number == load.expected : load.stride || number > 1;
    if (!ok) {
      return false;
    }
    if (load.to != ir::kNone) {
      frame.sizes[load.to] = number;
    }
  }
  return true;
}

bool bind(const NativeBinding& binding, NativeFrame& frame) {
  for (const NativeBinding::Tensor& tensor : binding.tensors) {
    if (!loadSizes(tensor, frame)) {
      return false;
    }
  }
  for (const auto& [to, sum] : binding.sums) {
    frame.sizes[to] = sumOf(sum, frame);
  }
  return std::all_of(binding.checks.begin(), binding.checks.end(), [&](const NativeBinding::Check& check) {
    const int64_t difference = sumOf(check.difference, frame);
    return difference < 0 ? check.less : difference == 0 ? check.zero : check.more;
  });
}

const std::vector<int64_t>& numbersOf(const NativeKernel& kernel, NativeFrame& frame) {
  if (kernel.patches.empty()) [[likely]] {
    return kernel.numbers;
  }
  frame.numbers = kernel.numbers;
  for (const NativePatch& patch : kernel.patches) {
    frame.numbers[patch.at] = frame.sizes[patch.from];
  }
  return frame.numbers;
}

// Reuses the tensor that this place of kept memory had before, unless something still refers to it.
void* keptTensor(const NativeMade& made, NativeFrame& frame) {
  void*& kept = frame.kept[made.place];
  if (kept == nullptr || !torchapi::isSoleOwner(kept)) {
    void* fresh = frame.plan->device->newTensor(made.layout);
    if (kept != nullptr) {
      torchapi::releaseTensor(kept);
    }
    kept = fresh;
  }
  torchapi::retainTensor(kept);
  return kept;
}

void make(const NativeMade& made, NativeFrame& frame) {
  Value& value = frame.values[made.slot];
  if (made.over != ir::kNone && torchapi::isSoleOwner(frame.values[made.over].tensor)) {
    value = frame.values[made.over];
    torchapi::retainTensor(value.tensor);
    return;
  }
  value.tensor = made.place != ir::kNone ? keptTensor(made, frame)
                                         : frame.plan->device->newTensor(layoutOf(made.layout, frame));
  value.kind = ValueKind::kTensor;
}

char* pointerTo(const NativeMemory& memory, NativeFrame& frame) {
  Value& value = frame.values[memory.slot];
  if (value.kind != ValueKind::kTensor) {
    return reinterpret_cast<char*>(&value.i);  // a number, an i64 or an f64
  }
  if (memory.slot < frame.held.size()) {
    return static_cast<char*>(frame.held[memory.slot].memory.first) + memory.offset;
  }
  return static_cast<char*>(torchapi::dataPointer(value.tensor)) + memory.offset;
}

void runProduct(const NativeProduct& product, NativeFrame& frame) {
  for (const NativeMade& made : product.made) {
    make(made, frame);
  }
  torchapi::ProductShape shape = product.shape;
  shape.m = product.rowsFrom == ir::kNone ? shape.m : frame.sizes[product.rowsFrom];
  auto data = [&frame](const NativeMemory& memory) {
    return reinterpret_cast<float*>(pointerTo(memory, frame));
  };
  frame.plan->device->multiply(shape, data(product.left), data(product.right), data(product.result));
}

// The number of pieces that threads divide among themselves: elements, rows, or pieces of a product.
int64_t unitsOf(const NativeKernel& kernel, const std::vector<int64_t>& numbers) {
  int64_t count = kernel.flat ? numbers[0] : 1;
  for (size_t d = 0; d < kernel.outerRank; ++d) {
    count *= numbers[1 + d];
  }
  if (kernel.chunk == 0) {
    return count;
  }
  const int64_t strips = (numbers[0] + kernel.strip - 1) / kernel.strip;
  const int64_t rows = kernel.batched ? numbers[kernel.outerRank] : count;
  return rows == 0 ? 0 : count / rows * ((rows + kernel.chunk - 1) / kernel.chunk) * strips;
}

// False: an index was out of range.
bool runKernel(const NativeKernel& kernel, int64_t minWorkPerThread, NativeFrame& frame) {
  for (const NativeMade& made : kernel.made) {
    make(made, frame);
  }
  frame.memory.resize(kernel.memory.size());
  for (size_t k = 0; k < kernel.memory.size(); ++k) {
    frame.memory[k] = pointerTo(kernel.memory[k], frame);
  }
  frame.outside = 0;
  if (kernel.checks) {
    frame.memory.push_back(&frame.outside);
  }
  const std::vector<int64_t>& numbers = numbersOf(kernel, frame);
  const int64_t count = unitsOf(kernel, numbers);
  if (count <= 0) {
    return true;
  }
  const int64_t unit =
      kernel.flat || kernel.chunk != 0 ? kernel.cost : kernel.cost * std::max<int64_t>(1, numbers[0]);
  const int64_t grain = std::max<int64_t>(1, minWorkPerThread / unit);
  NativeDevice& device = *frame.plan->device;
  device.launch({kernel.function, numbers.data(), frame.memory.data(), count, grain});
  if (kernel.checks) {
    device.synchronize();
  }
  return frame.outside == 0;
}

void runView(const NativeView& view, NativeFrame& frame) {
  Value& value = frame.values[view.to];
  value.tensor =
      torchapi::aliasTensor(frame.values[view.from].tensor, layoutOf(view.layout, frame), view.offset);
  value.kind = ValueKind::kTensor;
}

void runNumber(const NativeNumber& number, NativeFrame& frame) {
  Value& value = frame.values[number.slot];
  value.i = number.from == ir::kNone ? number.value : frame.sizes[number.from];
  value.kind = ValueKind::kInt;
}

void runRead(const NativeRead& read, NativeFrame& frame) {
  frame.plan->device->synchronize();
  const char* from = pointerTo(read.from, frame);
  Value& value = frame.values[read.slot];
  const auto load = [from](auto& number) { std::memcpy(&number, from, sizeof(number)); };
  float single = 0;
  int32_t small = 0;
  switch (read.type) {
    case NativeRead::Type::kF32:
      load(single);
      value.f = single;
      break;
    case NativeRead::Type::kF64:
      load(value.f);
      break;
    case NativeRead::Type::kI32:
      load(small);
      value.i = small;
      break;
    case NativeRead::Type::kI64:
      load(value.i);
      break;
  }
  const bool isFloat = read.type == NativeRead::Type::kF32 || read.type == NativeRead::Type::kF64;
  value.kind = isFloat ? ValueKind::kFloat : ValueKind::kInt;
}

bool isWithin(const Value& number, double most) {
  if (number.kind == ValueKind::kInt) {
    return number.i != std::numeric_limits<int64_t>::min() && std::abs(static_cast<double>(number.i)) <= most;
  }
  return number.kind != ValueKind::kFloat || !std::isfinite(number.f) || std::abs(number.f) <= most;
}

// Are the numbers that are bound so far within the ranges that kernels take?
bool areWithin(const NativePlan& plan, const NativeFrame& frame) {
  return std::all_of(plan.limits.begin(), plan.limits.end(),
                     [&](const auto& limit) { return isWithin(frame.values[limit.first], limit.second); });
}

bool runTape(const NativeCall::Tape& tape, NativeFrame& frame) {
  const auto valuesAt = [&frame](const std::vector<uint32_t>& slots) {
    std::vector<Value> values;
    for (const uint32_t slot : slots) {
      values.push_back(frame.values[slot]);
    }
    return values;
  };
  std::vector<Value> made(tape.made.size());
  if (!torchapi::RequestedTapes::isRequested(tape.number)) {
    torchapi::skipTape(valuesAt(tape.leaves), made);
  } else if (!torchapi::runTape(valuesAt(tape.results), valuesAt(tape.leaves), valuesAt(tape.gradients),
                                made)) {
    return false;
  }
  for (size_t k = 0; k < made.size(); ++k) {
    if (tape.made[k] == ir::kNone) {
      torchapi::clear(made[k]);
    } else {
      frame.values[tape.made[k]] = made[k];
    }
  }
  return true;
}

// Has a result the layout that kernels expect?
bool isAsExpected(const NativeCall& call, const NativeCall::Result& result, NativeFrame& frame) {
  Value& value = frame.values[result.slot];
  if (value.kind != ValueKind::kTensor) {
    return false;
  }
  return torchapi::hasLayout(value.tensor, result.layout) ||
         (call.restride && torchapi::restride(value.tensor, result.layout));
}

torchapi::AtenCall::Status writeInPlace(const NativeCall& call, NativeFrame& frame) {
  using Status = torchapi::AtenCall::Status;
  if (call.rows) {
    const Value& target = frame.values[call.target];
    const torchapi::RowUpdateStatus status =
        torchapi::updateRows(call.rows->update, target.tensor, frame.values[call.rows->index].tensor,
                             frame.values[call.rows->source].tensor);
    if (status == torchapi::RowUpdateStatus::kDone) {
      torchapi::retainTensor(target.tensor);
      frame.values[call.rows->result] = target;
      return Status::kOk;
    }
    if (status == torchapi::RowUpdateStatus::kFailed) {
      return Status::kChanged;
    }
  }
  return call.inPlace->run(frame.values.data(), frame.calls);
}

torchapi::AtenCall::Status runInPlace(const NativeCall& call, NativeFrame& frame) {
  Value& target = frame.values[call.target];
  if (call.lastLook && torchapi::isSoleOwner(target.tensor)) {
    return writeInPlace(call, frame);
  }
  void* before = target.tensor;
  target.tensor = torchapi::copyTensor(before);
  const torchapi::AtenCall::Status status = writeInPlace(call, frame);
  torchapi::releaseTensor(std::exchange(target.tensor, before));
  return status;
}

bool runCall(const NativeCall& call, NativeFrame& frame) {
  torchapi::AtenCall::Status status = torchapi::AtenCall::Status::kOk;
  if (call.tape != nullptr) {
    if (!runTape(*call.tape, frame)) {
      return false;
    }
  } else if (call.inPlace != nullptr) {
    const torchapi::BelowAutograd scope;
    status = runInPlace(call, frame);
  } else if (call.convolution != nullptr) {
    const torchapi::BelowAutograd scope;
    status = call.convolution->run(frame.values.data());
  } else if (call.taped != nullptr) {
    status = call.taped->run(frame.values.data(), frame.calls);
  } else if (call.whole) {
    status = call.call->run(frame.values.data(), frame.calls);
  } else {
    const torchapi::BelowAutograd scope;
    status = call.call->run(frame.values.data(), frame.calls);
  }
  if (status == torchapi::AtenCall::Status::kRaised) {
    frame.calls.dropError();
  }
  return status == torchapi::AtenCall::Status::kOk &&
         std::all_of(call.results.begin(), call.results.end(),
                     [&](const NativeCall::Result& result) { return isAsExpected(call, result, frame); });
}

bool bindResults(const NativePlan& plan, const NativeCall& call, NativeFrame& frame) {
  return call.binding == ir::kNone || bind(plan.bindings[call.binding], frame);
}

bool runSteps(const NativePlan& plan, NativeFrame& frame) {
  GradModeScope grad;
  if (!bind(plan.bindings.front(), frame) || !areWithin(plan, frame)) {
    return false;
  }
  frame.begun = true;
  for (size_t at = frame.steady ? plan.steadySteps : 0; at < plan.steps.size(); ++at) {
    const NativePlanStep& step = plan.steps[at];
    switch (step.kind) {
      case NativeStepKind::kKernel:
        if (!runKernel(plan.kernels[step.index], plan.minWorkPerThread, frame)) {
          return false;
        }
        break;
      case NativeStepKind::kView:
        runView(plan.views[step.index], frame);
        break;
      case NativeStepKind::kProduct:
        runProduct(plan.products[step.index], frame);
        break;
      case NativeStepKind::kCall:
        grad.enter(plan.calls[step.index].grad);
        if (!runCall(plan.calls[step.index], frame) || !bindResults(plan, plan.calls[step.index], frame) ||
            !areWithin(plan, frame)) {
          return false;
        }
        break;
      case NativeStepKind::kNumber:
        runNumber(plan.values[step.index], frame);
        break;
      case NativeStepKind::kRead:
        runRead(plan.reads[step.index], frame);
        if (!areWithin(plan, frame)) {
          return false;
        }
        break;
      case NativeStepKind::kScalar:
        if (!runScalar(plan.trace, plan.trace.code[step.index], frame.values.data()) ||
            !areWithin(plan, frame)) {
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
  constexpr uint64_t kNoise = 32;  // a difference of one in so many
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
  constexpr uint32_t kMostRounds = 3;
  constexpr uint64_t kClose = 12;  // a difference of one in so many
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
