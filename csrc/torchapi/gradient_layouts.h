// Inside torchapi only. How eager mode's gradients lie: native code packs what it makes, while operators of
// eager mode give out views of what they are given (the gradient of a sum is expanded, that of a transposed
// product is transposed).
//
// Idea: the strides of the gradients follow from those that arrive. They are seen where the backward of a
// segment is run by autograd, and then hold for native code, too: what it makes is looked at otherwise, or
// copied where memory lies in another order.
//
// Ownership: none. Threads: any. GIL: not needed. Invalidation: none.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace kintsugi::torchapi {

class GradientLayouts {
 public:
  using Strides = std::vector<int64_t>;
  using Arriving = std::vector<Strides>;  // by output; without any: it does not arrive
  struct Layout {
    Strides strides;
    bool isView = false;  // autograd knows it as a view of what arrived
  };
  using Made = std::vector<std::optional<Layout>>;  // by result

  static Arriving arriving(std::span<const at::Tensor> gradients);
  // Nothing: not known.
  std::optional<Made> find(const Arriving& arriving) const;
  // May there be more?
  bool hasRoom() const;
  void learn(const Arriving& arriving, std::span<const at::Tensor> made);

 private:
  struct Known {
    Arriving arriving;
    Made made;
  };
  mutable std::mutex mutex_;
  std::vector<Known> known_;
};

// The leaf that a gradient is added up in, in the backward that goes on; null: it is given out, or goes on.
const at::Tensor* accumulatingLeaf(const torch::autograd::Edge& edge);
// A gradient of these strides, or, where `edge` leads to a leaf that accumulates it, one of which the leaf's
// gradient becomes what it is in eager mode. `made` is nobody else's.
at::Tensor layOut(at::Tensor made, const GradientLayouts::Layout& wanted, const torch::autograd::Edge& edge);

}  // namespace kintsugi::torchapi
