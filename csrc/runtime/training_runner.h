// Runs a segment that autograd follows by native code: a plan forward, a plan backward, and a node of
// autograd's between them (torchapi/grad_node.h).
//
// Idea: the forward plan runs below autograd. It makes the tensors that operators of the segment allocate,
// and the values saved for the backward; one autograd node represents all of it. Views of these tensors are
// made after the node by their own operators, with autograd (the epilogue). As with NativeRunner, a run has
// no visible effect before it is complete: it can decline at any point, and the instructions are run instead.
//
// The faster way is kept: at first, runs alternate between the plans and the segment's instructions. These
// run in a graph of their own, after a node of the same kind, so that forward and backward are timed alike.
//
// Ownership: nodes share the plans with the runner and outlive it. Threads: run() on any number, without the
// GIL; setPlans() once. Invalidation: none.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/native_runner.h"
#include "torchapi/grad_node.h"

namespace kintsugi::runtime {

struct TrainingPlans {
  torchapi::GradNodeForm form;
  size_t ownCount = 0;       // how many saved values the forward returns after the node's outputs
  size_t epilogueCount = 0;  // results of the epilogue
  // Masks are drawn first, and come after the inputs.
  struct RandomMask {
    torchapi::TensorLayout layout;
    double probability = 0;  // of a one
  };
  std::vector<RandomMask> masks;
  // At the very end of a run, the content of one of the node's outputs is stored to an input.
  struct Store {
    uint32_t input = 0;
    uint32_t output = 0;
    uint32_t times = 0;  // by how much the input's version counter rises
  };
  std::vector<Store> stores;
  std::unique_ptr<const NativePlan> forward;
  std::unique_ptr<const NativePlan> backward;
  std::unique_ptr<const NativePlan> recompute;  // inputs to the node's outputs, operator by operator
  std::unique_ptr<const NativePlan> epilogue;   // null: there is none
  // The operators whose gradients need no saved tensor, for backwards after the saved tensors have been freed
  // (passes/free_gradients.h); null: there are none.
  std::unique_ptr<const NativePlan> free;
  std::vector<torchapi::TensorLayout> freeInputs;
  std::vector<uint32_t> freeLeaves;       // by gradient: an input of `free`, or kNone
  std::vector<ir::SegmentPlace> results;  // kOwn: of the epilogue
  std::vector<NativePlan::Input> inputs;  // what they have to be
  std::optional<bool> gradBefore;         // the grad mode that a run has to start in
  std::optional<bool> gradAfter;          // the grad mode that it leaves; nullopt: the same
};

class TrainingRunner : public SegmentRunner {
 public:
  TrainingRunner();
  ~TrainingRunner() override;

  bool needsGil() const final { return false; }
  bool raises() const final { return false; }
  State state() const final;
  uint64_t runs() const final { return runs_.load(std::memory_order_relaxed); }
  uint64_t backwards() const final;
  std::string failure() const override;
  Status run(std::span<const torchapi::Value> inputs, std::span<torchapi::Value> outputs) final;

  void setPlans(TrainingPlans plans);
  // Runs alternate between plans and instructions, `turns` times each; the faster stays. Before the first
  // run.
  void compare(uint32_t turns) { turnsLeft_.store(2 * turns, std::memory_order_relaxed); }
  void refuse() { refused_.store(true, std::memory_order_release); }
  // A plan would consist of the same calls as the instructions, so none is made. Before the first plan.
  void leaveToCalls() {
    plain_.store(true, std::memory_order_relaxed);
    refuse();
  }

 protected:
  // There was a run but no plans: compile them. Any thread, no GIL.
  virtual void codeNeeded() = 0;
  // Replay was faster: it keeps the segment. Any thread, no GIL.
  virtual void replayIsFaster(uint64_t native, uint64_t replay) = 0;
  // An internal check failed in a run, which declined. The code must not be run again. Any thread, no GIL.
  virtual void failed(const std::string& text) = 0;

 private:
  struct Code;
  class NativeCode;
  class ReplayCode;
  bool fits(const Code& code, std::span<const torchapi::Value> inputs) const;
  // nullopt: it declines.
  std::optional<torchapi::AttachedNodes> runForward(const std::shared_ptr<Code>& code, bool replay,
                                                    std::span<const torchapi::Value> inputs,
                                                    std::vector<torchapi::Value>& outputs);
  bool finish(const Code& code, const torchapi::AttachedNodes& nodes, std::span<const torchapi::Value> inputs,
              std::vector<torchapi::Value>& made, std::span<torchapi::Value> outputs);
  static bool mayStore(const TrainingPlans& plans, std::span<const torchapi::Value> inputs);
  static bool fitStores(const TrainingPlans& plans, std::span<const torchapi::Value> inputs,
                        std::span<const torchapi::Value> made);
  static void store(const TrainingPlans& plans, std::span<const torchapi::Value> inputs,
                    std::span<const torchapi::Value> made);
  void compareWithReplay(const Code& code);

  std::shared_ptr<Code> code_;  // set before ready_ is
  std::atomic<bool> ready_{false};
  std::atomic<bool> refused_{false};
  std::atomic<bool> plain_{false};  // before refused_ is
  std::atomic<uint64_t> runs_{0};
  std::atomic<uint32_t> turnsLeft_{0};
};

}  // namespace kintsugi::runtime
