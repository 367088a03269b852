// Inside torchapi only. OperatorGraph: a segment with autograd's own nodes, one for each operator, that a
// backward with create_graph=True has run again.
//
// In eager mode there is one graph: a backward through the gradient that frees nodes frees them for the
// backwards of the outputs, and the other way round. Here there are two, so each learns what the other has
// freed.
//
//   y = f(x)                     segment's node
//   g = grad(y, x, create)       this graph is made; g hangs on it
//   g.backward()                 frees nodes of this graph: hooks of theirs say so
//   y.backward()                 isReleased(): runs along this graph, which raises where eager mode does
//
// The program's hooks of outputs are those of the segment's nodes. A gradient that reaches an output here
// goes through them too: together with the segment's own, if that comes in the same backward.
//
// Ownership: shares its nodes; their hooks share what they note. Threads: the user locks; nodes run on any.
// GIL: must not be held while a backward runs. Invalidation: none.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace kintsugi::torchapi {

// Gradients that have come to outputs by the operators' graph, and wait for those of the segment's node.
struct WaitingGradients {
  int task = -1;
  int lastRun = -1;  // the last backward that has run the segment's node
  torch::autograd::variable_list gradients;
};

// The hooks of a segment's node as one: they see its gradients and those that wait.
std::unique_ptr<torch::autograd::FunctionPreHook> hooksWithWaiting(torch::autograd::Node* node,
                                                                   std::shared_ptr<WaitingGradients> waiting);

class OperatorGraph {
 public:
  // `inputs`: aliases of the segment's. `outputs`: those that autograd follows; perhaps undefined. `gets`:
  // the inputs whose gradients there are.
  OperatorGraph(torch::autograd::variable_list inputs, torch::autograd::variable_list outputs,
                const std::vector<uint32_t>& gets);

  // What comes to these outputs goes through the hooks of `maker`, a node of the segment's whose inputs they
  // are, in order. Null: nothing comes there, or from several operators.
  std::shared_ptr<WaitingGradients> callHooksOf(torch::autograd::Node* maker,
                                                const std::vector<uint32_t>& outputs);

  torch::autograd::variable_list& inputs() { return inputs_; }
  torch::autograd::variable_list& outputs() { return outputs_; }

  // The gradients of those that `requested` has (by `gets`), for those that have arrived (by output; others
  // are undefined). Frees nothing.
  torch::autograd::variable_list differentiate(const torch::autograd::variable_list& arrived,
                                               const std::vector<bool>& requested, bool create) const;

  // Has another backward than this one freed nodes between these outputs and inputs?
  bool isReleased(const torch::autograd::variable_list& arrived, const std::vector<bool>& requested,
                  int task) const;
  // Frees those that the backward of this thread does not come to by itself.
  void release(uint64_t outputs, const std::vector<bool>& requested) const;

 private:
  using NodePointer = decltype(torch::autograd::Edge::function);
  static constexpr size_t kNone = SIZE_MAX;
  struct Place {
    NodePointer node;
    std::vector<size_t> next;  // places
    std::vector<size_t> gets;
    std::shared_ptr<std::atomic<int>> releasedBy;  // a backward
  };

  void collect(const NodePointer& root);
  size_t placeOf(const torch::autograd::Node* node) const;
  // By place: it is between these outputs and inputs.
  template <typename Arrived>
  std::vector<bool> between(const Arrived& hasArrived, const std::vector<bool>& requested) const;

  torch::autograd::variable_list inputs_, outputs_;
  std::vector<torch::autograd::Edge> targets_;  // by `gets`
  std::vector<uint32_t> gets_;
  std::vector<Place> places_;  // inputs first
  // How many calls of differentiate() go on: hooks have seen what these bring.
  std::shared_ptr<std::atomic<int>> calls_ = std::make_shared<std::atomic<int>>(0);
};

// Does the backward that goes on in this thread run the node?
bool willRun(torch::autograd::Node* node);

}  // namespace kintsugi::torchapi
