#include "runtime/training_runner.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "diag/events.h"
#include "support/check.h"
#include "support/contain.h"
#include "support/fault.h"
#include "torchapi/global_state.h"
#include "torchapi/native_tensors.h"
#include "torchapi/op_effects.h"
#include "torchapi/taped_call.h"

namespace kintsugi::runtime {

using torchapi::Value;
using torchapi::ValueKind;
using From = ir::SegmentPlace::From;

namespace {

constexpr uint64_t kUnknownTime = ~uint64_t{0};

// Runs one plan, which is set from the start.
class PlanRunner final : public NativeRunner {
 public:
  bool runPlan(std::span<const Value> inputs, std::span<Value> outputs) {
    return run(inputs, outputs) == Status::kOk;
  }

  std::string failure() const override {
    std::lock_guard lock(mutex_);
    return failure_;
  }

 protected:
  void codeNeeded() override {}
  void replayIsFaster(uint64_t, uint64_t) override {}
  void failed(const std::string& text) override {
    refuse();
    std::lock_guard lock(mutex_);
    failure_ = text;
  }

 private:
  mutable std::mutex mutex_;
  std::string failure_;
};

void clearAll(std::span<Value> values) {
  for (Value& value : values) {
    torchapi::clear(value);
  }
}

// A tensor whose contents no gradient depends on. Operators may check indices, so these are 0.
void* newStandIn(const torchapi::TensorLayout& layout) {
  void* made = torchapi::newTensor(layout);
  if (layout.dtype == ir::DType::kI64 || layout.dtype == ir::DType::kI32) {
    const torchapi::MemoryExtent memory = torchapi::memoryExtent(made);
    std::memset(torchapi::dataPointer(made), 0, static_cast<size_t>(memory.end - memory.begin));
  }
  return made;
}

// Restores the grad mode at its end.
class GradModeScope {
 public:
  GradModeScope() : before_(torchapi::gradMode()) {}
  ~GradModeScope() { torchapi::setGradMode(before_); }
  GradModeScope(const GradModeScope&) = delete;

 private:
  const bool before_;
};

// A hook of a leaf can see which other gradients have arrived when it is called. In eager mode these are the
// gradients of operators that run before.
bool seesOrder(const torchapi::GradNodeForm& form, std::span<const Value> inputs) {
  size_t leaves = 0;
  bool hooks = false;
  for (const uint32_t input : form.gets) {
    if (inputs[input].kind != ValueKind::kTensor) continue;
    leaves += torchapi::isFollowedLeaf(inputs[input].tensor) ? 1 : 0;
    hooks = hooks || torchapi::hasLeafHooks(inputs[input].tensor);
  }
  return hooks && leaves + form.madeAt.size() > 2;
}

void updateMinimum(std::atomic<uint64_t>& least, uint64_t time) {
  uint64_t seen = least.load(std::memory_order_relaxed);
  while (time < seen && !least.compare_exchange_weak(seen, time, std::memory_order_relaxed)) {
  }
}

}  // namespace

// Shared with the nodes.
struct TrainingRunner::Code {
  TrainingPlans plans;
  mutable PlanRunner forward, backward, recompute, epilogue, free;
  bool hasFree = false;
  std::shared_ptr<const torchapi::GradNodeCode> native, replay;
  mutable std::atomic<uint64_t> backwards{0};
  mutable std::atomic<uint64_t> nativeTime{kUnknownTime};
  mutable std::atomic<uint64_t> replayTime{kUnknownTime};
};

class TrainingRunner::NativeCode : public torchapi::GradNodeCode {
 public:
  NativeCode(torchapi::GradNodeForm form, std::shared_ptr<torchapi::GradientLayouts> layouts,
             std::weak_ptr<const Code> code)
      : GradNodeCode(std::move(form), std::move(layouts)), code_(std::move(code)) {}

  bool run(std::span<const Value> values, std::span<Value> gradients, uint64_t forwardTime,
           const Requested& asked) const override {
    const std::shared_ptr<const Code> code = code_.lock();
    const uint64_t start = diag::events::nowNs();
    const torchapi::RequestedTapes scope(asked.tapes);
    if (code == nullptr || !code->backward.runPlan(values, gradients)) {
      return false;
    }
    code->backwards.fetch_add(1, std::memory_order_relaxed);
    if (forwardTime != 0) {
      updateMinimum(code->nativeTime, forwardTime + diag::events::nowNs() - start);
    }
    return true;
  }

  bool recompute(std::span<const Value> inputs, std::span<Value> outputs) const override {
    const GradModeScope scope;
    const std::shared_ptr<const Code> code = code_.lock();
    return code != nullptr && code->recompute.runPlan(inputs, outputs);
  }

  bool runFree(std::span<Value> leaves, std::span<Value> outputs) const override {
    const std::shared_ptr<const Code> code = code_.lock();
    if (code == nullptr || !code->hasFree) return false;
    std::vector<Value> inputs;
    for (const torchapi::TensorLayout& layout : code->plans.freeInputs) {
      inputs.push_back({.kind = ValueKind::kTensor, .tensor = newStandIn(layout)});
    }
    for (size_t k = 0; k < leaves.size(); ++k) {
      const uint32_t input = code->plans.freeLeaves[k];
      if (input == ir::kNone) continue;
      leaves[k] = {.kind = ValueKind::kTensor, .tensor = torchapi::newLeaf(inputs[input].tensor)};
      torchapi::clear(inputs[input]);
      inputs[input] = leaves[k];
      torchapi::retainTensor(leaves[k].tensor);
    }
    const bool done = code->free.runPlan(inputs, outputs);
    clearAll(inputs);
    return done;
  }

 protected:
  std::weak_ptr<const Code> code_;
};

// The backward of a segment whose instructions were run in an autograd graph of their own: from results to
// leaves.
class TrainingRunner::ReplayCode final : public NativeCode {
 public:
  using NativeCode::NativeCode;

  bool isAutograd() const override { return true; }

  bool run(std::span<const Value> values, std::span<Value> gradients, uint64_t forwardTime,
           const Requested& asked) const override {
    const std::shared_ptr<const Code> code = code_.lock();
    const uint64_t start = diag::events::nowNs();
    const size_t leaves = form().gets.size();
    const size_t count = (values.size() - leaves) / 2;
    std::vector<Value> results, arrived, targets, made;
    for (size_t k = 0; k < count; ++k) {
      if (values[count + leaves + k].kind != ValueKind::kTensor) continue;
      results.push_back(values[k]);
      arrived.push_back(values[count + leaves + k]);
    }
    const auto isRequested = [&](size_t k) { return asked.gets.empty() || asked.gets[k]; };
    for (size_t k = 0; k < leaves; ++k) {
      if (isRequested(k)) targets.push_back(values[count + k]);
    }
    made.resize(targets.size());
    if (code == nullptr || !torchapi::runTape(results, targets, arrived, made)) {
      return false;
    }
    auto next = made.begin();
    for (size_t k = 0; k < leaves; ++k) {
      if (isRequested(k)) {
        gradients[k] = *next++;
      } else {
        torchapi::skipTape(values.subspan(count + k, 1), gradients.subspan(k, 1));
      }
    }
    if (forwardTime != 0) {
      updateMinimum(code->replayTime, forwardTime + diag::events::nowNs() - start);
    }
    return true;
  }
};

TrainingRunner::TrainingRunner() = default;
TrainingRunner::~TrainingRunner() = default;

SegmentRunner::State TrainingRunner::state() const {
  if (refused_.load(std::memory_order_acquire)) {
    return plain_.load(std::memory_order_relaxed) ? State::kPlain : State::kRefused;
  }
  return ready_.load(std::memory_order_acquire) ? State::kReady : State::kWaiting;
}

std::string TrainingRunner::failure() const {
  if (!ready_.load(std::memory_order_acquire)) {
    return {};
  }
  for (const PlanRunner* plan :
       {&code_->forward, &code_->backward, &code_->recompute, &code_->epilogue, &code_->free}) {
    if (std::string text = plan->failure(); !text.empty()) {
      return text;
    }
  }
  return {};
}

uint64_t TrainingRunner::backwards() const {
  return ready_.load(std::memory_order_acquire) ? code_->backwards.load(std::memory_order_relaxed) : 0;
}

void TrainingRunner::setPlans(TrainingPlans plans) {
  KINTSUGI_CHECK(plans.forward != nullptr && plans.backward != nullptr && plans.recompute != nullptr,
                 "a plan is missing");
  KINTSUGI_CHECK((plans.epilogue == nullptr) == (plans.epilogueCount == 0), plans.epilogueCount,
                 " results of the epilogue");
  KINTSUGI_CHECK(plans.backward->outputs.size() >= plans.form.gets.size(), plans.backward->outputs.size(),
                 " gradients for ", plans.form.gets.size(), " inputs");
  auto code = std::make_shared<Code>();
  code->forward.setPlan(std::move(plans.forward));
  code->backward.setPlan(std::move(plans.backward));
  code->recompute.setPlan(std::move(plans.recompute));
  if (plans.epilogue != nullptr) {
    code->epilogue.setPlan(std::move(plans.epilogue));
  }
  code->hasFree = plans.free != nullptr;
  if (code->hasFree) {
    code->free.setPlan(std::move(plans.free));
  }
  const auto layouts = torchapi::newGradientLayouts();
  code->native = std::make_shared<NativeCode>(plans.form, layouts, code);
  torchapi::GradNodeForm replay = plans.form;
  replay.kept.clear();
  replay.leaves.clear();
  const auto followed = static_cast<uint32_t>(std::count(replay.follows.begin(), replay.follows.end(), true));
  for (uint32_t k = 0; k < followed + replay.gets.size(); ++k) {
    replay.kept.push_back({.place = {From::kOwn, k}});
  }
  for (uint32_t k = 0; k < replay.gets.size(); ++k) {
    replay.leaves.push_back({followed + k, {From::kInput, replay.gets[k]}});
  }
  code->replay = std::make_shared<ReplayCode>(std::move(replay), layouts, code);
  code->plans = std::move(plans);
  code_ = std::move(code);
  ready_.store(true, std::memory_order_release);
}

bool TrainingRunner::fits(const Code& code, std::span<const Value> inputs) const {
  const TrainingPlans& plans = code.plans;
  if (inputs.size() != plans.inputs.size() || !torchapi::mayUseOwnKernels() ||
      !torchapi::mayReplaceSegment() || (plans.gradBefore && *plans.gradBefore != torchapi::gradMode())) {
    return false;
  }
  if (seesOrder(plans.form, inputs)) {
    return false;
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    const NativePlan::Input& wanted = plans.inputs[k];
    if (inputs[k].kind != wanted.kind) {
      return false;
    }
    if (wanted.kind != ValueKind::kTensor) {
      continue;
    }
    void* impl = inputs[k].tensor;
    const bool ok = wanted.known ? torchapi::implMatches(impl, wanted.info, true)
                                 : torchapi::isOrdinary(impl) && !torchapi::tensorRequiresGrad(impl);
    if (!ok || torchapi::hasTangent(impl)) {
      return false;
    }
  }
  return true;
}

std::optional<torchapi::AttachedNodes> TrainingRunner::runForward(const std::shared_ptr<Code>& code,
                                                                  bool replay, std::span<const Value> inputs,
                                                                  std::vector<Value>& outputs) {
  const uint64_t start = diag::events::nowNs();
  const torchapi::GradNodeForm& form = code->plans.form;
  const size_t count = form.follows.size();
  if (!replay) {
    outputs.resize(count + code->plans.ownCount);
    {
      const torchapi::GradModeOff off;
      if (!code->forward.runPlan(inputs, outputs)) {
        return std::nullopt;
      }
    }
    const std::span<Value> all(outputs);
    auto nodes = torchapi::attachGradNode({code, code->native.get()}, inputs, all.first(count),
                                          all.subspan(count), diag::events::nowNs() - start);
    outputs.resize(count);
    return nodes;
  }
  std::vector<Value> leaves(inputs.begin(), inputs.end()), own;
  for (const uint32_t input : form.gets) {
    leaves[input].tensor = torchapi::newLeaf(inputs[input].tensor);
  }
  outputs.resize(count);
  bool done = false;
  {
    const GradModeScope scope;
    done = code->recompute.runPlan(leaves, outputs);
  }
  for (size_t k = 0; done && k < count; ++k) {
    if (form.follows[k]) {
      torchapi::retainTensor(outputs[k].tensor);
      own.push_back(outputs[k]);
    }
  }
  for (const uint32_t input : form.gets) {
    own.push_back(leaves[input]);
  }
  if (!done) {
    clearAll(own);
    return std::nullopt;
  }
  return torchapi::attachGradNode({code, code->replay.get()}, inputs, outputs, own,
                                  diag::events::nowNs() - start);
}

bool TrainingRunner::finish(const Code& code, const torchapi::AttachedNodes& nodes,
                            std::span<const Value> inputs, std::vector<Value>& made,
                            std::span<Value> outputs) {
  const TrainingPlans& plans = code.plans;
  std::vector<Value> epilogueResults(plans.epilogueCount);
  if (plans.epilogueCount != 0) {
    std::vector<Value> all(inputs.begin(), inputs.end());
    all.insert(all.end(), made.begin(), made.end());
    const GradModeScope scope;
    const torchapi::EpilogueOrder order(*code.native, nodes);
    if (!code.epilogue.runPlan(all, epilogueResults)) {
      return false;
    }
    order.end(inputs, epilogueResults);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const ir::SegmentPlace& result = plans.results[k];
    outputs[k] = result.from == From::kInput    ? inputs[result.index]
                 : result.from == From::kOutput ? made[result.index]
                                                : epilogueResults[result.index];
    if (outputs[k].kind == ValueKind::kTensor) {
      torchapi::retainTensor(outputs[k].tensor);
    }
  }
  clearAll(epilogueResults);
  if (plans.gradAfter) {
    torchapi::setGradMode(*plans.gradAfter);
  }
  return true;
}

// May the plans write to these inputs? Not if their memory is shared.
bool TrainingRunner::mayStore(const TrainingPlans& plans, std::span<const Value> inputs) {
  if (plans.stores.empty()) {
    return true;
  }
  std::vector<torchapi::MemoryExtent> extents;
  for (const Value& input : inputs) {
    extents.push_back(input.kind == ValueKind::kTensor ? torchapi::memoryExtent(input.tensor)
                                                       : torchapi::MemoryExtent());
  }
  return std::all_of(plans.stores.begin(), plans.stores.end(), [&](const TrainingPlans::Store& store) {
    const torchapi::MemoryExtent& to = extents[store.input];
    for (size_t k = 0; k < extents.size(); ++k) {
      if (k != store.input && extents[k].begin < to.end && to.begin < extents[k].end) {
        return false;
      }
    }
    return torchapi::prepareWrite(inputs[store.input].tensor);
  });
}

// Are the values as large as the inputs that they are stored to?
bool TrainingRunner::fitStores(const TrainingPlans& plans, std::span<const Value> inputs,
                               std::span<const Value> made) {
  return std::all_of(plans.stores.begin(), plans.stores.end(), [&](const TrainingPlans::Store& store) {
    if (made[store.output].kind != ValueKind::kTensor) {
      return false;
    }
    const torchapi::MemoryExtent to = torchapi::memoryExtent(inputs[store.input].tensor);
    const torchapi::MemoryExtent from = torchapi::memoryExtent(made[store.output].tensor);
    return to.end - to.begin == from.end - from.begin;
  });
}

void TrainingRunner::store(const TrainingPlans& plans, std::span<const Value> inputs,
                           std::span<const Value> made) {
  for (const TrainingPlans::Store& store : plans.stores) {
    const torchapi::MemoryExtent from = torchapi::memoryExtent(made[store.output].tensor);
    std::memcpy(torchapi::dataPointer(inputs[store.input].tensor), from.begin,
                static_cast<size_t>(from.end - from.begin));
    if (store.times != 0) {
      torchapi::countWrites(inputs[store.input].tensor, store.times);
    }
  }
}

SegmentRunner::Status TrainingRunner::run(std::span<const Value> inputs, std::span<Value> outputs) {
  if (refused_.load(std::memory_order_relaxed)) {
    return Status::kDeclined;
  }
  if (!ready_.load(std::memory_order_acquire)) {
    codeNeeded();
    return Status::kDeclined;
  }
  const std::shared_ptr<Code>& code = code_;
  if (!fits(*code, inputs) || !mayStore(code->plans, inputs)) {
    return Status::kDeclined;
  }
  uint32_t turns = turnsLeft_.load(std::memory_order_relaxed);
  while (turns != 0 && !turnsLeft_.compare_exchange_weak(turns, turns - 1, std::memory_order_relaxed)) {
  }
  if (turns == 0) {
    compareWithReplay(*code);
  }
  // The first turn is a replay, from which the strides of eager mode's gradients are learned.
  const bool replay = turns != 0 && turns % 2 == 0;
  std::vector<Value> made, all(inputs.begin(), inputs.end());
  std::optional<torchapi::GeneratorState> generator;
  bool done = false;
  const auto failure = contain([&] {
    faultPoint("training run");
    if (!code->plans.masks.empty()) {
      generator.emplace();
    }
    for (const TrainingPlans::RandomMask& mask : code->plans.masks) {
      Value drawn;
      drawn.tensor = torchapi::drawMask(mask.layout, mask.probability);
      drawn.kind = ValueKind::kTensor;
      all.push_back(drawn);
    }
    const auto nodes = runForward(code, replay, all, made);
    done = nodes && fitStores(code->plans, all, made) && finish(*code, *nodes, all, made, outputs);
    if (done) {
      store(code->plans, all, made);
    }
  });
  if (failure) [[unlikely]] {
    done = false;  // an operator's exception, or no memory: replay will raise it
    if (failure->isCheck) failed(failure->text);
  }
  clearAll(made);
  clearAll(std::span(all).subspan(inputs.size()));
  if (!done && generator) {
    generator->restore();
  }
  if (done && !replay) {
    runs_.fetch_add(1, std::memory_order_relaxed);
  }
  return done ? Status::kOk : Status::kDeclined;
}

// Decides between native code and replay, once all turns are taken and both have been run backwards.
void TrainingRunner::compareWithReplay(const Code& code) {
  const uint64_t native = code.nativeTime.load(std::memory_order_relaxed);
  const uint64_t replay = code.replayTime.load(std::memory_order_relaxed);
  if (native != kUnknownTime && replay != kUnknownTime && native > replay &&
      !refused_.exchange(true, std::memory_order_acq_rel)) {
    replayIsFaster(native, replay);
  }
}

}  // namespace kintsugi::runtime
