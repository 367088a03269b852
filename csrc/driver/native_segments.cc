#include "driver/native_segments.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "codegen/kernel_cache.h"
#include "diag/events.h"
#include "diag/log.h"
#include "driver/fx_segments.h"
#include "driver/native_checks.h"
#include "driver/native_plan_builder.h"
#include "driver/native_training.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "passes/extract_segment.h"
#include "passes/gradient_graph.h"
#include "passes/result_versions.h"
#include "passes/segment_passes.h"
#include "runtime/native_runner.h"
#include "runtime/replay_program.h"
#include "runtime/training_runner.h"
#include "support/check.h"
#include "support/contain.h"
#include "support/fault.h"
#include "support/fork_gate.h"
#include "support/target.h"
#include "torchapi/eager_traits.h"
#include "torchapi/products.h"

namespace kintsugi::driver {

namespace {

namespace log = diag::log;

// How often a segment runs each way before the faster one is kept. More turns leave the slower way in use for
// longer; with fewer, what else the machine does decides. Autotuning takes the many.
constexpr uint32_t kTurns = 4;
constexpr uint32_t kManyTurns = 16;
constexpr uint32_t kTrials = 8;  // of each way to compile it, likewise

// Does the tensor's memory hold its elements as they are (no conjugate or negative bit)?
bool isPlain(const ir::TensorDesc& info) { return info.plain && !info.isConj && !info.isNeg; }

// A segment that the compiler thread compiles.
class Compilable {
 public:
  explicit Compilable(NativeSegmentInfo info) : info_(std::move(info)) {}
  virtual ~Compilable() = default;
  void compile();
  // Is it to be compiled before its first run?
  virtual bool isKnown() const { return true; }
  // The first run compiles it, instead of the thread.
  void compileAtRun() { atRun_ = true; }

 protected:
  // Makes the plans and hands them to the runner. False, with a reason: replay keeps the segment.
  virtual bool make(const NativeSegmentInfo& info, NativeSummary& summary, std::string& reason) = 0;
  virtual void giveUp() = 0;
  virtual void leaveToCalls() = 0;
  void enqueue(std::weak_ptr<Compilable> self);
  // A check of ours has failed when the code was made or run: it is kept for failureText(), and logged.
  void noteFailure(const std::string& text);
  std::string failureText() const {
    std::lock_guard lock(failing_);
    return failure_;
  }
  NativeSegmentInfo& info() { return info_; }
  const NativeSegmentInfo& info() const { return info_; }
  void reportReplayIsFaster(uint64_t native, uint64_t replay) const;
  void reportChoice(const std::string& text) const;

 private:
  void report(const NativeSummary& summary, const std::string& refusal, uint64_t startNs,
              const codegen::CacheCounters& before) const;
  diag::SourceLoc place() const { return {info_.segment.file, info_.segment.line, info_.segment.function}; }

  NativeSegmentInfo info_;
  std::atomic<bool> queued_{false};
  bool atRun_ = false;
  mutable std::mutex failing_;  // of failure_
  std::string failure_;
};

// Does a segment write to tensors and have inputs of unknown layout? Then the first run's inputs decide where
// it writes.
bool writesToUnknown(const NativeSegmentInfo& info) {
  const ir::Trace& segment = info.segment;
  const bool writes = std::any_of(segment.code.begin(), segment.code.end(), [&](const ir::Instruction& ins) {
    return ins.op == ir::Op::kAten && operatorTraits(segment.opNames[ins.opName]).writes;
  });
  return writes && std::any_of(info.inputs.begin(), info.inputs.end(), [](const auto& input) {
           return input.kind == torchapi::ValueKind::kTensor && !input.known;
         });
}

// Takes the layouts of a run's inputs for those of later runs.
void adoptInputs(std::span<const torchapi::Value> inputs, NativeSegmentInfo& info) {
  std::vector<ir::ValueId> values;
  ir::collectValues(info.segment, info.segment.operandsOf(info.segment.code.front()), values);
  for (size_t k = 0; k < inputs.size() && k < values.size(); ++k) {
    runtime::NativePlan::Input& input = info.inputs[k];
    const bool tensor = input.kind == torchapi::ValueKind::kTensor && inputs[k].kind == input.kind;
    if (!tensor || input.known || !torchapi::isOrdinary(inputs[k].tensor)) {
      continue;
    }
    const ir::TensorDesc seen = torchapi::describeImpl(inputs[k].tensor);
    if (!isPlain(seen)) {
      continue;
    }
    info.segment.values[values[k]].meta = static_cast<ir::MetaId>(info.segment.metas.size());
    info.segment.metas.push_back(seen);
    input.known = true;
    input.info = seen;
  }
}

// A segment below autograd (`Runner` is NativeRunner) or with a backward of its own (TrainingRunner).
template <typename Runner>
class Segment : public Runner, public Compilable, public std::enable_shared_from_this<Segment<Runner>> {
 public:
  using Compilable::Compilable;

 protected:
  void codeNeeded() override { enqueue(this->weak_from_this()); }
  void replayIsFaster(uint64_t native, uint64_t replay) override { reportReplayIsFaster(native, replay); }
  void failed(const std::string& text) override {
    noteFailure(text);
    this->refuse();
  }
  std::string failure() const override {
    const std::string text = failureText();
    return text.empty() ? Runner::failure() : text;
  }
  void giveUp() override { this->refuse(); }
  void leaveToCalls() override { Runner::leaveToCalls(); }
};

class NativeSegment final : public Segment<runtime::NativeRunner> {
 public:
  using Segment::Segment;
  bool isKnown() const override { return !writesToUnknown(info()); }

 protected:
  void observeInputs(std::span<const torchapi::Value> inputs) override {
    std::lock_guard lock(observing_);
    if (!std::exchange(observed_, true) && !isKnown()) {
      adoptInputs(inputs, info());
    }
  }

  bool make(const NativeSegmentInfo& info, NativeSummary& summary, std::string& reason) override {
    std::unique_ptr<runtime::NativePlan> plan = buildNativePlan(info, summary, reason);
    if (plan == nullptr) return false;
    if (info.autotune) {
      tryVariants(info, std::move(plan), summary);
    } else {
      setPlan(std::move(plan));
    }
    return true;
  }

  void planChosen(size_t plan, std::span<const uint64_t> nanoseconds) override {
    codegen::rememberChoice(question_, std::string(variants_[plan]->name));
    std::string text = std::string(variants_[plan]->name) + " is the fastest:";
    for (size_t k = 0; k < nanoseconds.size(); ++k) {
      text += (k == 0 ? " " : ", ") + std::string(variants_[k]->name) + " " +
              std::to_string(nanoseconds[k] / 1000) + " us";
    }
    reportChoice(text);
  }

 private:
  // Compiles the variant that was the fastest in an earlier process, or all that differ for this segment.
  void tryVariants(const NativeSegmentInfo& info, std::unique_ptr<const runtime::NativePlan> usual,
                   const NativeSummary& summary) {
    const int64_t threads = torchapi::threadCount();
    question_ = targetKey(target()) + " threads=" + std::to_string(threads) +
                (info.keepMemory ? " kept\n" : "\n") + summary.graph;
    const std::optional<std::string> known = codegen::recallChoice(question_);
    std::vector<std::unique_ptr<const runtime::NativePlan>> plans;
    for (const NativeVariant& variant : nativeVariants()) {
      const bool first = variants_.empty();
      if (first) {
        plans.push_back(std::move(usual));
      } else if (makesDifference(variant, {summary.tiled, summary.attention, threads}) &&
                 (!known || *known == variant.name)) {
        NativeSummary other;
        std::string reason;
        std::unique_ptr<runtime::NativePlan> plan = buildNativePlan(info, other, reason, variant);
        if (plan == nullptr) continue;
        plans.push_back(std::move(plan));
      } else {
        continue;
      }
      variants_.push_back(&variant);
    }
    if (known || plans.size() == 1) {
      if (known) reportChoice(std::string(variants_.back()->name) + ", as remembered");
      setPlan(std::unique_ptr<const runtime::NativePlan>(std::move(plans.back())));
    } else {
      setPlans(std::move(plans), kTrials);
    }
  }

  std::mutex observing_;
  bool observed_ = false;
  std::string question_;  // what the choice is remembered by
  std::vector<const NativeVariant*> variants_;
};

class TrainingSegment final : public Segment<runtime::TrainingRunner> {
 public:
  using Segment::Segment;

 protected:
  bool make(const NativeSegmentInfo& info, NativeSummary& summary, std::string& reason) override {
    std::optional<runtime::TrainingPlans> plans = buildTrainingPlans(info, summary, reason);
    if (!plans) return false;
    setPlans(std::move(*plans));
    return true;
  }
};

// The queue, its thread, and what is being compiled. Lives as long as the process.
class Compiler {
 public:
  static Compiler& instance() {
    static auto* compiler = new Compiler();
    return *compiler;
  }

  void add(std::weak_ptr<Compilable> segment) {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
    queue_.push_back(std::move(segment));
    if (thread_ == nullptr) {
      thread_ = new std::thread([this] { work(); });
    }
    changed_->notify_all();
  }

  // Compiles on the calling thread.
  void compileNow(const std::weak_ptr<Compilable>& segment) {
    std::unique_lock lock(mutex_);
    compile(segment, lock);
  }

  bool wait(double seconds) {
    std::unique_lock lock(mutex_);
    startThread();
    const auto idle = [this] { return stopping_ || (queue_.empty() && compiling_.empty()); };
    if (seconds < 0) {
      changed_->wait(lock, idle);
      return true;
    }
    return changed_->wait_for(lock, std::chrono::duration<double>(seconds), idle);
  }

  size_t backlog() {
    std::lock_guard lock(mutex_);
    return queue_.size() + compiling_.size();
  }

  void stop() {
    std::thread* thread = nullptr;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
      thread = std::exchange(thread_, nullptr);
      changed_->notify_all();
    }
    if (thread != nullptr) {
      thread->join();
      delete thread;
    }
  }

  void prepareFork() {
    compileGate().prepare();
    learning_.lock();
    mutex_.lock();
    codegen::prepareFork();
  }
  void afterFork(bool child) {
    codegen::afterFork();
    if (child) {
      // A forked child has neither the thread nor those who waited for it; their state is leaked. What they
      // were compiling has no plan yet, and is begun anew.
      thread_ = nullptr;
      changed_ = new std::condition_variable();
      queue_.insert(queue_.begin(), compiling_.begin(), compiling_.end());
      compiling_.clear();
    }
    mutex_.unlock();
    learning_.unlock();
    child ? compileGate().child() : compileGate().parent();
  }

 private:
  // After a fork there may be work without a thread.
  void startThread() {
    if (thread_ == nullptr && !queue_.empty() && !stopping_) {
      thread_ = new std::thread([this] { work(); });
    }
  }

  // A fork finds a segment either among those that are being compiled, without a plan, or not among them.
  void compile(const std::weak_ptr<Compilable>& segment, std::unique_lock<std::mutex>& lock) {
    const auto place = compiling_.insert(compiling_.end(), segment);
    lock.unlock();
    {
      const ForkGate::Inside inside(compileGate());
      if (const std::shared_ptr<Compilable> held = segment.lock()) {
        held->compile();
      }
      const std::lock_guard done(mutex_);
      compiling_.erase(place);
      changed_->notify_all();
    }
    lock.lock();
  }

  // Lazy statics about torch are initialized under a lock that a fork takes too: a child that is forked while
  // the thread initializes one would wait for it forever.
  void learnTraits() {
    const std::lock_guard lock(learning_);
    torchapi::hasFloatProducts();
    torchapi::geluForms();
  }

  void work() {
    learnTraits();
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (queue_.empty()) {
        changed_->wait(lock);
        continue;
      }
      const std::weak_ptr<Compilable> segment = std::move(queue_.front());
      queue_.pop_front();
      compile(segment, lock);
    }
  }

  std::mutex learning_;  // while the thread finds out how torch computes; taken before mutex_
  std::mutex mutex_;
  std::condition_variable* changed_ = new std::condition_variable();
  std::deque<std::weak_ptr<Compilable>> queue_;
  std::list<std::weak_ptr<Compilable>> compiling_;
  bool stopping_ = false;
  std::thread* thread_ = nullptr;
};

void Compilable::enqueue(std::weak_ptr<Compilable> self) {
  if (queued_.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  if (atRun_) {
    Compiler::instance().compileNow(self);
  } else {
    Compiler::instance().add(std::move(self));
  }
}

// Forward-mode derivatives are attached to tensors, where only autograd sees them: such segments are
// replayed.
bool mayBeCode(const ir::Trace& segment, std::string& reason) {
  const bool dual = std::any_of(segment.code.begin(), segment.code.end(), [&](const ir::Instruction& ins) {
    return ins.op == ir::Op::kAten && ops::has(segment.opNames[ins.opName], ops::Trait::kForwardMode);
  });
  if (dual) {
    reason = "it computes derivatives in forward mode";
  }
  return !dual;
}

void Compilable::compile() {
  const uint64_t start = diag::events::nowNs();
  const codegen::CacheCounters before =
      diag::events::on() ? codegen::cacheCounters() : codegen::CacheCounters();
  NativeSummary summary;
  std::string reason;
  bool made = false;
  const auto failure = contain([&] {
    faultPoint("native code");
    made = mayBeCode(info_.segment, reason) && make(info_, summary, reason);
  });
  if (failure) {
    made = false;
    reason = failure->isCheck ? "a check of Kintsugi's own failed" : failure->text;
    if (failure->isCheck) noteFailure(failure->text);
  }
  if (made) {
    reason.clear();
  } else if (!failure && summary.plain) {
    leaveToCalls();
  } else {
    giveUp();
    if (reason.empty()) reason = "no reason given";
  }
  report(summary, reason, start, before);
}

// Reports a compilation to the log and the event stream. `refusal`: why replay keeps the segment; empty: it
// does not.
void Compilable::report(const NativeSummary& summary, const std::string& refusal, uint64_t startNs,
                        const codegen::CacheCounters& before) const {
  namespace events = diag::events;
  if (!events::on() && !log::enabled(log::Channel::kPerf)) return;
  const uint64_t duration = events::nowNs() - startNs;
  const std::string count = std::to_string(summary.instructions) + " operators ";
  const std::string made = summary.plain
                               ? count + "stay calls of ATen's: replay makes them"
                               : count + "became " + std::to_string(summary.kernels) + " kernels and " +
                                     std::to_string(summary.calls) + " calls and views";
  if (refusal.empty() && summary.plain) {
    log::emit(log::Channel::kPerf, "[NATIVE " + info_.segment.function + "] " + made);
  } else if (refusal.empty()) {
    log::emit(log::Channel::kPerf, "[NATIVE " + info_.segment.function + "] " + made + ", in " +
                                       std::to_string(duration / 1000000) + " ms; at most " +
                                       std::to_string(summary.peak >> 10) + " KiB at once");
  } else {
    log::emit(log::Channel::kPerf, diag::Diagnostic(diag::Code::KTG0113, {refusal}, place()).format());
  }
  if (!events::on()) return;
  events::Event event{.startNs = startNs,
                      .durationNs = duration,
                      .extra = summary.kernels,
                      .stack = events::intern(events::stackText({place()})),
                      .name = events::intern("native"),
                      .text = events::intern(refusal.empty() ? made : "left to replay: " + refusal),
                      .kind = events::Kind::kCompile};
  events::emit(event);
  // One thread compiles; code that a call waits for is compiled by that call, and then both are counted.
  const codegen::CacheCounters after = codegen::cacheCounters();
  const std::pair<const char*, uint64_t> hits[] = {{"memory", after.reused - before.reused},
                                                   {"disk", after.loaded - before.loaded}};
  event.startNs += duration;
  event.durationNs = 0;
  event.text = 0;
  event.kind = events::Kind::kCacheHit;
  for (const auto& [where, count] : hits) {
    if (count == 0) continue;
    event.extra = count;
    event.name = events::intern(where);
    events::emit(event);
  }
}

void Compilable::noteFailure(const std::string& text) {
  {
    std::lock_guard lock(failing_);
    failure_ = text;
  }
  if (log::enabled(log::Channel::kGraphBreaks))
    log::emit(log::Channel::kGraphBreaks, diag::Diagnostic(diag::Code::KTG0000, {text}, place()).format());
}

void Compilable::reportReplayIsFaster(uint64_t native, uint64_t replay) const {
  if (log::enabled(log::Channel::kPerf)) {
    const std::string reason = "replay takes " + std::to_string(replay / 1000) + " us, native code " +
                               std::to_string(native / 1000) + " us";
    log::emit(log::Channel::kPerf, diag::Diagnostic(diag::Code::KTG0113, {reason}, place()).format());
  }
}

void Compilable::reportChoice(const std::string& text) const {
  if (log::enabled(log::Channel::kPerf)) {
    log::emit(log::Channel::kPerf, "[NATIVE " + info_.segment.function + "] " + text);
  }
}

// The types of values, with metadata from guards inside the trace where the instructions have none. It is
// assumed wherever the value is used, also before its guard: each run of native code checks its inputs and
// the results of calls anyway.
std::vector<ir::Type> typesWithGuards(const ir::Trace& trace) {
  std::vector<ir::Type> types = trace.values;
  for (const ir::Instruction& ins : trace.code) {
    if (ins.op == ir::Op::kGuardMeta) {
      const auto operands = trace.operandsOf(ins);
      ir::Type& type = types[operands[0].id];
      type = trace.hasFixedSizes(type) ? type : ir::Type{type.kind, static_cast<ir::MetaId>(operands[1].i)};
    }
  }
  return types;
}

// False: an input is of a kind that no segment can be compiled for.
bool describeInputs(NativeSegmentInfo& info) {
  using torchapi::ValueKind;
  const ir::Trace& segment = info.segment;
  std::vector<ir::ValueId> values;
  ir::collectValues(segment, segment.operandsOf(segment.code.front()), values);
  bool ok = true;
  for (const ir::ValueId value : values) {
    const ir::Type& type = segment.values[value];
    runtime::NativePlan::Input input;
    input.kind = torchapi::kindOfType(type.kind);
    ok = ok && input.kind != ValueKind::kEmpty && input.kind != ValueKind::kNone;
    if (input.kind == ValueKind::kTensor && type.meta != ir::kNone) {
      input.known = true;
      input.info = segment.metas[type.meta];
      ok = ok && isPlain(input.info);
    }
    info.inputs.push_back(std::move(input));
  }
  return ok;
}

// `alone`: both ways to run it can be timed.
template <typename Made>
std::shared_ptr<Made> start(std::shared_ptr<Made> made, bool described, bool alone,
                            const NativeOptions& options) {
  if (!described) {
    made->refuse();
  } else if (options.sync) {
    made->isKnown() ? Compiler::instance().compileNow(made) : made->compileAtRun();
  } else if (alone) {
    made->compare(options.autotune ? kManyTurns : kTurns);
  }
  return made;
}

}  // namespace

void attachNative(runtime::CompiledTrace& trace, const NativeOptions& options) {
  const recording::Recording& recording = trace.recording();
  const ir::Trace& whole = recording.document.trace;
  const std::vector<ir::Type> types = typesWithGuards(whole);
  size_t runner = 0;
  for (const ir::SegmentRange& range : ir::findSegments(whole)) {
    if (range.begin < recording.start) {
      continue;  // the parent's
    }
    NativeSegmentInfo info{passes::extractSegment(whole, range, types),
                           {},
                           options.strict,
                           options.contract,
                           options.keepMemory};
    info.versions = passes::resultVersions(info.segment);
    passes::prepareSegment({info.segment, {.traits = operatorTraits}});
    info.autotune = options.autotune;
    const bool described = describeInputs(info);
    if (passes::needsGradients(info.segment)) {
      trace.replay().setRunner(
          runner++, start(std::make_shared<TrainingSegment>(std::move(info)), described, true, options));
    } else {
      // Replay is timed from mark to mark: nothing but the graph may stand between them.
      const bool alone = trace.replay().code().segments[runner].offGraph.empty();
      trace.replay().setRunner(
          runner++, start(std::make_shared<NativeSegment>(std::move(info)), described, alone, options));
    }
  }
  KINTSUGI_CHECK(runner == trace.replay().code().segments.size(), runner, " runners for ",
                 trace.replay().code().segments.size(), " segments");
}

bool waitForNative(double seconds) { return Compiler::instance().wait(seconds); }
size_t nativeBacklog() { return Compiler::instance().backlog(); }
void stopNative() { Compiler::instance().stop(); }

void installNativeForkHandlers() {
  pthread_atfork([] { Compiler::instance().prepareFork(); }, [] { Compiler::instance().afterFork(false); },
                 [] { Compiler::instance().afterFork(true); });
}

void countNative(runtime::CompiledTrace& trace, NativeCounts& counts) {
  using State = runtime::SegmentRunner::State;
  for (const runtime::SegmentCode& segment : trace.replay().code().segments) {
    if (segment.runner == nullptr || segment.runner->needsGil()) {
      continue;
    }
    ++counts.segments;
    counts.ready += segment.runner->state() == State::kReady ? 1 : 0;
    counts.plain += segment.runner->state() == State::kPlain ? 1 : 0;
    counts.refused += segment.runner->state() == State::kRefused ? 1 : 0;
    counts.runs += segment.runner->runs();
    counts.backwards += segment.runner->backwards();
  }
  trace.sides().each([&](uint32_t, const runtime::SideLink& link) { countNative(*link.trace, counts); });
}

void collectFailures(runtime::CompiledTrace& trace, std::vector<std::string>& texts) {
  for (const runtime::SegmentCode& segment : trace.replay().code().segments) {
    std::string text = segment.runner == nullptr ? std::string() : segment.runner->failure();
    if (!text.empty()) texts.push_back(std::move(text));
  }
  trace.sides().each([&](uint32_t, const runtime::SideLink& link) { collectFailures(*link.trace, texts); });
}

}  // namespace kintsugi::driver
