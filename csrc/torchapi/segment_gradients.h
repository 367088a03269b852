// Inside torchapi only. SegmentGradients: the backward of one run of a segment, which its nodes
// (torchapi/grad_node.h) share.
//
// Idea: nodes of outputs bring gradients, gates take those of inputs. All gradients are computed at once,
// when the first gate runs: in general each output of the backward has run by then. Where one comes later,
// because it has hooks that eager mode calls later, what depends on it is computed once more.
//
// Ownership: shares the code, inputs and what was kept; knows its nodes, and does not hold them. Threads:
// any; one backward at a time computes. GIL: must not be held while gradients are computed. Invalidation:
// what is kept goes behind backwards that do not keep the graph and have come to all of eager mode's nodes
// that keep anything.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/input_metadata.h>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "torchapi/grad_node.h"
#include "torchapi/gradient_layouts.h"
#include "torchapi/kept_tensors.h"
#include "torchapi/node_ownership.h"

namespace kintsugi::torchapi {

// Values that own their tensors.
class OwnValues;

class SegmentGradients {
 public:
  SegmentGradients(std::shared_ptr<const GradNodeCode> code, uint64_t forwardTime);

  // When the segment has run.
  void keepInputs(std::span<const Value> inputs);
  KeptTensors& kept() { return kept_; }
  // What nodes there are. A node tells before it goes.
  void addMaker(size_t maker, torch::autograd::Node* node);
  void addGate(size_t gate, torch::autograd::Node* node);
  // The node of a tensor that is made behind the nodes, and that eager mode comes to after some gates.
  void addLook(WeakNode node) { looks_.push_back(std::move(node)); }
  void forget(const torch::autograd::Node* node);

  // Within a backward, before the hooks of outputs are called: if they may see which gradients are there,
  // the nodes run in eager mode's order.
  void orderForHooks();
  void arrive(size_t maker, torch::autograd::variable_list&& gradients);
  // The gradients of a gate's inputs.
  torch::autograd::variable_list give(size_t gate);

 private:
  // One backward.
  struct Run {
    int task = 0;
    torch::autograd::variable_list gradients;  // by output
    std::vector<bool> hasRun;                  // by maker
    std::vector<bool> waits;                   // by gate
    uint64_t arrived = 0;                      // outputs whose gradients are there
    uint64_t used = 0;                         // those that `made` was computed of
    std::vector<bool> requested;               // by result
    torch::autograd::variable_list made;
    std::optional<GradientLayouts::Made>
        layouts;  // of eager mode, where they are known and `made` has others
  };

  Run& runOf(int task);
  uint64_t allOutputs() const;
  void checkFreed(uint64_t arrived, const std::vector<bool>& requested) const;
  bool isMakerExpected(const Run& run);
  void finish(Run& run, size_t gate);
  void free(const Run& run);
  std::vector<bool> findRequested();
  GradNodeCode::Requested findRequestedTapes(const Run& run, std::vector<bool> gets) const;
  void compute(Run& run);
  bool runCode(Run& run, bool all);
  void forwardAgain(torch::autograd::variable_list& aliases, OwnValues& outputs, bool create);
  torch::autograd::variable_list runAgain(const Run& run);
  torch::autograd::variable_list runFree(const Run& run);
  at::Tensor gradientFor(const Run& run, size_t output) const;
  void learnLayouts(Run& run);
  void separate(at::Tensor& made, const torch::autograd::Edge& edge) const;

  const std::shared_ptr<const GradNodeCode> code_;
  std::mutex mutex_;
  KeptTensors kept_;
  std::vector<Value> numbers_;  // by input: inputs that are no tensors
  uint64_t forwardTime_;
  std::vector<bool> freed_;  // by `holders`: a backward has run through it
  size_t freedCount_ = 0;
  std::vector<Run> runs_;              // backwards that go on, or have raised
  std::unordered_set<int> forgotten_;  // tasks of others

  std::mutex nodesMutex_;  // of what follows; the last to be locked
  std::vector<torch::autograd::Node*> makers_, gates_;
  std::vector<std::optional<torch::autograd::InputMetadata>> metadata_;  // by output
  std::vector<WeakNode> looks_;
};

}  // namespace kintsugi::torchapi
