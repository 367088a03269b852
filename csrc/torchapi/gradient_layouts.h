// Inside torchapi only. The strides of eager mode's gradients. Native code makes contiguous gradients, while
// operators of eager mode often return views of the gradients that they are given: the gradient of a sum is
// expanded, that of a transposed product is transposed.
//
// Idea: the strides of a segment's gradients follow from the strides of the gradients that arrive. They are
// learned when autograd runs the backward of a segment. Later backwards with native code give their gradients
// the same strides: as a view, or as a copy if the elements are in another order in memory.
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
  using Arriving = std::vector<Strides>;  // by output; empty: no gradient arrives
  struct Layout {
    Strides strides;
    bool isView = false;  // it is a view of a gradient that arrived
  };
  using Made = std::vector<std::optional<Layout>>;  // by result

  static Arriving arriving(std::span<const at::Tensor> gradients);
  // Nothing: not learned yet.
  std::optional<Made> find(const Arriving& arriving) const;
  // False: the table is full.
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

// The leaf that accumulates the gradient in the current backward. Null: the gradient is returned to the
// program, or passed to another node.
const at::Tensor* accumulatingLeaf(const torch::autograd::Edge& edge);
// Gives a gradient the strides of `wanted`. If `edge` leads to a leaf that accumulates it, the result is one
// for which the leaf's gradient gets eager mode's strides. `made` must not be shared.
at::Tensor layOut(at::Tensor made, const GradientLayouts::Layout& wanted, const torch::autograd::Edge& edge);

}  // namespace kintsugi::torchapi
