// KeptTensors: what one run of a segment saves for its backward: tensors, the memory that they had in the
// forward, and their version counters.
//
// Idea: for each operator, eager mode saves the tensor itself (the backward then sees other memory that it is
// given: `weight.data = other`), a view of it (then it does not), or a copy. A write to one of the first two
// before the backward is an error. ir/kept_form.h says which it is; this class holds the tensors.
//
// Ownership: inputs are shared; outputs are not, since they own the node; their memory is. Threads: none of
// its own; who uses it locks. No GIL. Invalidation: clear().
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <span>
#include <vector>

#include "torchapi/grad_node.h"

namespace kintsugi::torchapi {

class KeptTensors {
 public:
  explicit KeptTensors(const GradNodeForm& form) : form_(form) {}

  // Before and after the outputs have their place in autograd's graph. Raises for tensors of inference mode.
  void keepInputs(std::span<const Value> inputs);
  void keepOutputs(std::span<const Value> outputs);
  void keepOwn(std::span<Value> own);  // taken over
  void clear();

  // Raises where something was written to that eager mode would look at: with the gradients that have arrived
  // (bits of outputs), and for what is asked of `node`.
  void check(uint64_t arrived, const torch::autograd::Node& node) const;
  // ... and the same of inputs from which the segment can't be run again then.
  bool mayRunAgain(uint64_t arrived) const { return writtenInput(arrived) == nullptr; }
  void checkRunAgain(uint64_t arrived) const;
  bool isNeeded(uint64_t arrived) const { return (form_.held & arrived) != 0; }

  // In the order in which the code takes it. False: something lies in another way by now.
  bool take(std::vector<at::Tensor>& out);

  size_t inputCount() const { return inputs_.size(); }
  const at::Tensor& input(size_t k) const { return inputs_[k].tensor; }
  // An input in a graph of its own, in the memory of the forward; with the grad mode on. `attached`: and in
  // that of the input, if it has one.
  at::Tensor inputAgain(size_t k, bool attached) const;
  // What such inputs and outputs are when the backward comes to look at them.
  void moveInput(size_t k, at::Tensor& alias) const;
  void moveOutput(size_t k, at::Tensor& output) const;

 private:
  // A tensor that others see.
  struct Seen {
    at::Tensor tensor;  // of inputs
    c10::weak_intrusive_ptr<at::TensorImpl> output{c10::intrusive_ptr<at::TensorImpl>()};
    at::Tensor then;  // the same memory as in the forward
    c10::VariableVersion counter;
    uint32_t version = 0;

    at::Tensor now() const;
    bool isWritten() const { return counter.enabled() && counter.current_version() != version; }
    bool isMoved() const;
  };

  const Seen& at(const ir::SegmentPlace& place) const {
    return (place.from == ir::SegmentPlace::From::kInput ? inputs_ : outputs_)[place.index];
  }
  bool isStored(size_t input) const;
  const Seen* writtenInput(uint64_t arrived) const;
  [[noreturn]] static void raiseModified(const Seen& seen);
  bool moveLeaves();

  const GradNodeForm& form_;
  std::vector<Seen> inputs_, outputs_;
  std::vector<at::Tensor> own_;
  bool isCleared_ = false;
};

}  // namespace kintsugi::torchapi
