// Runs a segment by its native code, once that is there; until then, and where a run does not fit, it
// declines.
//
// Ownership: a runner owns its plan. Threads: run() on any number of them, without the GIL; setPlan() once,
// by whoever compiled it. A run that meets an exception declines too: nothing that native code does can be
// seen before it is done, so the segment's instructions are run instead, and one of them raises.
// Invalidation: none.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/native_plan.h"
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
  void refuse() { refused_.store(true, std::memory_order_release); }

 protected:
  // The segment has been run without a plan. Any thread, no GIL.
  virtual void wanted() = 0;

 private:
  std::unique_ptr<NativeFrame> take(const NativePlan& plan);
  void giveBack(std::unique_ptr<NativeFrame> frame);

  std::atomic<const NativePlan*> plan_{nullptr};
  std::atomic<bool> refused_{false};
  std::atomic<uint64_t> runs_{0};
  std::mutex mutex_;  // of idle_
  std::vector<std::unique_ptr<NativeFrame>> idle_;
};

}  // namespace kintsugi::runtime
