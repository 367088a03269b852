// Inside torchapi only. SegmentGradients: the backward of one run of a segment, which its nodes
// (torchapi/grad_node.h) share.
//
// Idea: output nodes deliver the gradients of outputs, input nodes take those of inputs. All gradients are
// computed at once, when the first input node runs. In general all output nodes have run by then. If one runs
// later, because it has hooks that eager mode calls later, the gradients that depend on it are computed
// again.
//
// Ownership: shares the code, the inputs and the saved tensors; borrows its nodes. Threads: any; one backward
// at a time computes. GIL: must not be held while gradients are computed. Invalidation: saved tensors are
// freed when backwards without retain_graph=True have run all nodes of eager mode's that would save tensors.
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
  // A node calls forget() when it is destroyed.
  void addOutputNode(size_t outputNode, torch::autograd::Node* node);
  void addInputNode(size_t inputNode, torch::autograd::Node* node);
  // The node of a tensor of the epilogue, which eager mode runs after gradients of some inputs.
  void addEpilogueNode(WeakNode node) { epilogueNodes_.push_back(std::move(node)); }
  void forget(const torch::autograd::Node* node);

  // Within a backward, before the hooks of outputs are called: if they may see which gradients have arrived,
  // the nodes run in eager mode's order.
  void orderForHooks();
  void arrive(size_t outputNode, torch::autograd::variable_list&& gradients);
  // The gradients of an input node's inputs.
  torch::autograd::variable_list give(size_t inputNode);

 private:
  // One backward.
  struct Run {
    int task = 0;
    torch::autograd::variable_list gradients;  // by output
    std::vector<bool> hasRun;                  // by output node
    std::vector<bool> waits;                   // by input node
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
  bool isOutputNodeExpected(const Run& run);
  void finish(Run& run, size_t inputNode);
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
  std::vector<torch::autograd::Node*> outputNodes_, inputNodes_;
  std::vector<std::optional<torch::autograd::InputMetadata>> metadata_;  // by output
  std::vector<WeakNode> epilogueNodes_;
};

}  // namespace kintsugi::torchapi
