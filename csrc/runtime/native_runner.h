// Runs a segment by its native code, once that is compiled. Until then, and when the inputs do not fit, run()
// declines, and replay runs the segment's instructions.
//
// Idea: native code has no visible effect before it is complete, as stores to inputs come last and can't
// fail. So a run that meets an exception declines too: the instructions are run instead, and one of them
// raises.
//
// Ownership: a runner owns its plan. Threads: run() on any number of them, without the GIL; setPlan() once,
// by the thread that compiled it, or setPlans() with several plans of the same graph, of which the fastest is
// kept. Invalidation: none.
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
  // Of at least two plans, the first `trials` runs of each are timed; the first plan is kept unless another
  // is faster by more than noise. Call it before the first run with a plan.
  void setPlans(std::vector<std::unique_ptr<const NativePlan>> plans, uint32_t trials);
  // Runs alternate between replay and native code, `turns` times each, and the faster way is kept. If the two
  // are close, or replay seems to be faster, there are more turns, up to four times as many, so that noise
  // does not decide. Native code is given up only if its best time is worse and if it was slower than the
  // replay that followed it in most turns. Call it before the first run.
  void compare(uint32_t turns) {
    turns_ = turns;
    turnsLeft_.store(2 * turns, std::memory_order_relaxed);
  }
  void replayed(uint64_t nanoseconds) final;
  void refuse() { refused_.store(true, std::memory_order_release); }
  // A plan would consist of the same calls as the instructions, so none is made. Before the first plan.
  void leaveToCalls() {
    plain_.store(true, std::memory_order_relaxed);
    refuse();
  }

 protected:
  // There was a run but no plan: compile one. Any thread, no GIL.
  virtual void codeNeeded() = 0;
  // Called before codeNeeded(), with the inputs of the run.
  virtual void observeInputs(std::span<const torchapi::Value> /*inputs*/) {}
  // Replay was faster: it keeps the segment. Any thread, no GIL.
  virtual void replayIsFaster(uint64_t native, uint64_t replay) = 0;
  // An internal check failed in a run, which declined. The code must not be run again. Any thread, no GIL.
  virtual void failed(const std::string& text) = 0;
  // Of several plans this was the fastest; the best time of each. Any thread, no GIL.
  virtual void planChosen(size_t /*plan*/, std::span<const uint64_t> /*nanoseconds*/) {}

 private:
  static constexpr uint64_t kUnknownTime = ~uint64_t{0};
  Status runPlan(const NativePlan& plan, std::span<const torchapi::Value> inputs,
                 std::span<torchapi::Value> outputs);
  Status runTrial(uint32_t trial, std::span<const torchapi::Value> inputs,
                  std::span<torchapi::Value> outputs);
  void pickFastestPlan();
  void compareWithReplay();
  bool isPausing();
  void noteWastedRun();
  std::unique_ptr<NativeFrame> acquireFrame(const NativePlan& plan);
  void releaseFrame(std::unique_ptr<NativeFrame> frame);

  std::atomic<const NativePlan*> plan_{nullptr};
  // The plans to choose from, and their best times. Set before plan_.
  struct Trials {
    std::vector<std::unique_ptr<const NativePlan>> plans;
    std::vector<std::atomic<uint64_t>> times;
  };
  std::unique_ptr<Trials> trials_;
  std::atomic<uint32_t> trialsLeft_{0};
  std::atomic<bool> refused_{false};
  std::atomic<bool> plain_{false};  // before refused_ is
  std::atomic<uint64_t> runs_{0};
  std::atomic<uint32_t> wastedRuns_{0};  // runs in a row that declined after they had begun
  std::atomic<uint32_t> pause_{0};       // how many runs will be replayed because of them
  uint32_t turns_ = 0;
  std::atomic<uint32_t> turnsLeft_{0};  // of the comparison with replay; even: it is native code's turn
  std::atomic<uint32_t> rounds_{0};     // how many rounds of turns were too close to decide
  std::atomic<uint64_t> nativeTime_{kUnknownTime};
  std::atomic<uint64_t> replayTime_{kUnknownTime};
  std::atomic<uint64_t> lastTime_{kUnknownTime};  // of the latest native turn
  std::atomic<int32_t> turnBalance_{0};           // turns that native code won, less those that it lost
  std::mutex mutex_;                              // of idle_
  std::vector<std::unique_ptr<NativeFrame>> idle_;
};

}  // namespace kintsugi::runtime
