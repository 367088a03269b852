// Runs a segment by its native code, once that is there; until then, and where a run does not fit, it
// declines.
//
// Ownership: a runner owns its plan. Threads: run() on any number of them, without the GIL; setPlan() once,
// by whoever compiled it, or setPlans(): several ways to compute the same, of which the fastest stays. A run
// that meets an exception declines too: nothing that native code does can be seen before it is done, so the
// segment's instructions are run instead, and one of them raises. What writes to inputs comes last and can't
// fail. Invalidation: none.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/native_frame.h"
#include "runtime/segment_runner.h"

namespace kintsugi::runtime {

class NativeRunner : public SegmentRunner {
 public:
  NativeRunner();
  ~NativeRunner() override;

  bool needsGil() const final { return false; }
  bool raises() const final { return false; }
  State state() const final;
  uint64_t runs() const final { return runs_.load(std::memory_order_relaxed); }
  Status run(std::span<const torchapi::Value> inputs, std::span<torchapi::Value> outputs) final;

  void setPlan(std::unique_ptr<const NativePlan> plan);
  // The first `trials` runs of each are measured; the first plan stays unless another is faster by more than
  // noise. At least two; before the first run with a plan.
  void setPlans(std::vector<std::unique_ptr<const NativePlan>> plans, uint32_t trials);
  // Runs are replayed and run natively by turns, `turns` times each, and what was faster stays. Where the two
  // are close, or replay seems to be faster, noise could decide, for good: then there are more turns, up to
  // four times as many. Native code is lost only if its least time is greater and if it was slower in most
  // turns than the replay right behind it. Before the first run.
  void compare(uint32_t turns) {
    turns_ = turns;
    turnsLeft_.store(2 * turns, std::memory_order_relaxed);
  }
  void replayed(uint64_t nanoseconds) final;
  void refuse() { refused_.store(true, std::memory_order_release); }

 protected:
  // The segment is to be run without a plan. Any thread, no GIL.
  virtual void codeNeeded() = 0;
  // ... on these inputs, before that.
  virtual void observeInputs(std::span<const torchapi::Value> /*inputs*/) {}
  // Replay has turned out to be faster. Any thread, no GIL.
  virtual void replayIsFaster(uint64_t native, uint64_t replay) = 0;
  // A check of ours has failed in a run, which has declined. The code is not to be run again. Any thread, no
  // GIL.
  virtual void failed(const std::string& text) = 0;
  // Of several plans this is the fastest; the least time of each. Any thread, no GIL.
  virtual void planChosen(size_t /*plan*/, std::span<const uint64_t> /*nanoseconds*/) {}

 private:
  static constexpr uint64_t kUnknownTime = ~uint64_t{0};
  Status runPlan(const NativePlan& plan, std::span<const torchapi::Value> inputs,
                 std::span<torchapi::Value> outputs);
  Status runTrial(uint32_t trial, std::span<const torchapi::Value> inputs,
                  std::span<torchapi::Value> outputs);
  void choose();
  void judge();
  bool isPausing();
  void noteWastedRun();
  std::unique_ptr<NativeFrame> take(const NativePlan& plan);
  void giveBack(std::unique_ptr<NativeFrame> frame);

  std::atomic<const NativePlan*> plan_{nullptr};
  // Of several ways: the plans, and how long they took. Set before plan_.
  struct Trials {
    std::vector<std::unique_ptr<const NativePlan>> plans;
    std::vector<std::atomic<uint64_t>> times;
  };
  std::unique_ptr<Trials> trials_;
  std::atomic<uint32_t> trialsLeft_{0};
  std::atomic<bool> refused_{false};
  std::atomic<uint64_t> runs_{0};
  std::atomic<uint32_t> wastedRuns_{0};  // runs in a row that declined half way
  std::atomic<uint32_t> pause_{0};       // runs that are to be replayed for that
  uint32_t turns_ = 0;
  std::atomic<uint32_t> turnsLeft_{0};  // of the comparison; even: native code's
  std::atomic<uint32_t> rounds_{0};     // of turns that have not decided
  std::atomic<uint64_t> nativeTime_{kUnknownTime};
  std::atomic<uint64_t> replayTime_{kUnknownTime};
  std::atomic<uint64_t> lastTime_{kUnknownTime};  // of the latest native turn
  std::atomic<int32_t> won_{0};                   // turns, less those that were lost
  std::mutex mutex_;                              // of idle_
  std::vector<std::unique_ptr<NativeFrame>> idle_;
};

}  // namespace kintsugi::runtime
