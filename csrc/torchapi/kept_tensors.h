// KeptTensors: what one run of a segment saves for its backward: tensors, the memory that they had in the
// forward, and their version counters.
//
// For each operator, eager mode saves a tensor in one of three ways: the tensor itself (the backward then
// sees other memory that the tensor is given by `weight.data = other`), a view of it (the backward does not
// see that), or a copy. A write to one of the first two before the backward is an error. ir/kept_form.h says
// which way it is; this class holds the tensors.
//
// Ownership: shares inputs. Does not hold outputs, since these own the node; holds their memory. Threads: not
// safe by itself; the user locks. No GIL. Invalidation: clear().
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

  // Called before and after the outputs are added to autograd's graph. Raises for tensors of inference mode.
  void keepInputs(std::span<const Value> inputs);
  void keepOutputs(std::span<const Value> outputs);
  void keepOwn(std::span<Value> own);  // taken over
  void clear();

  // Raises if something was written to that eager mode would read in the backward, given the gradients that
  // have arrived (bits of outputs) and the results that are asked for (by `gets`).
  void check(uint64_t arrived, const std::vector<bool>& requested) const;
  // The same check for inputs: if one was written to, the segment can't be run again.
  bool mayRecompute(uint64_t arrived) const { return writtenInput(arrived) == nullptr; }
  void checkRecompute(uint64_t arrived) const;
  bool isCleared() const { return isCleared_; }

  // The tensors in the order in which the code takes them. False: one has another layout by now.
  bool take(std::vector<at::Tensor>& out);

  size_t inputCount() const { return inputs_.size(); }
  const at::Tensor& input(size_t k) const { return inputs_[k].tensor; }
  // An input as the start of a new graph, in the memory that it had in the forward; call it with grad mode
  // on. `attached`: it is also part of the input's own graph, if there is one.
  at::Tensor recomputeInput(size_t k, bool attached) const;
  // Gives such inputs and outputs the memory that the tensors have when the backward runs.
  void moveInput(size_t k, at::Tensor& alias) const;
  void moveOutput(size_t k, at::Tensor& output) const;

 private:
  // A tensor that others hold too.
  struct Seen {
    at::Tensor tensor;  // for inputs
    c10::weak_intrusive_ptr<at::TensorImpl> output{c10::intrusive_ptr<at::TensorImpl>()};
    at::Tensor then;  // a tensor with the memory of the forward
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
