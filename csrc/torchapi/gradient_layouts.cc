#include "torchapi/gradient_layouts.h"

#include <algorithm>

#include <ATen/ops/alias.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include "torchapi/native_tensors.h"

namespace kintsugi::torchapi {

namespace autograd = torch::autograd;

namespace {

// Layouts of arriving gradients that a segment knows. More of them are left as native code makes them.
constexpr size_t kMostLayouts = 16;

// Strides of dimensions of one element mean nothing.
bool sameOrder(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b) {
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k] != 1 && a[k] != b[k]) return false;
  }
  return true;
}

}  // namespace

const at::Tensor* accumulatingLeaf(const autograd::Edge& edge) {
  const auto* node = dynamic_cast<autograd::AccumulateGrad*>(edge.function.get());
  if (node == nullptr) return nullptr;
  const auto* asked = autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || asked->empty()) return &node->variable;
  const auto info = asked->find(edge.function.get());
  return info != asked->end() && info->second.captures_ == nullptr ? &node->variable : nullptr;
}

GradientLayouts::Arriving GradientLayouts::arriving(std::span<const at::Tensor> gradients) {
  Arriving all;
  for (const at::Tensor& gradient : gradients) {
    Strides& strides = all.emplace_back();
    if (!gradient.defined()) continue;
    strides.push_back(gradient.dim());  // so that a scalar is told from what does not arrive
    strides.insert(strides.end(), gradient.strides().begin(), gradient.strides().end());
  }
  return all;
}

std::optional<GradientLayouts::Made> GradientLayouts::find(const Arriving& arriving) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = std::ranges::find(known_, arriving, &Known::arriving);
  return known != known_.end() ? std::optional(known->made) : std::nullopt;
}

bool GradientLayouts::hasRoom() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return known_.size() < kMostLayouts;
}

void GradientLayouts::learn(const Arriving& arriving, std::span<const at::Tensor> made) {
  Known known{arriving, Made(made.size())};
  for (size_t k = 0; k < made.size(); ++k) {
    if (!made[k].defined()) continue;
    known.made[k].emplace(Strides(made[k].strides().begin(), made[k].strides().end()), made[k].is_view());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (known_.size() < kMostLayouts) known_.push_back(std::move(known));
}

namespace {

// The leaf that accumulates the gradient, if no hook sees the gradient before.
const at::Tensor* quietLeaf(const autograd::Edge& edge) {
  const at::Tensor* leaf = accumulatingLeaf(edge);
  const bool seen = leaf != nullptr && !edge.function->tensor_pre_hooks().empty();
  return seen ? nullptr : leaf;
}

at::Tensor withStrides(at::Tensor made, at::IntArrayRef strides, const autograd::Edge& edge) {
  const at::IntArrayRef sizes = made.sizes();
  if (made.layout() != at::kStrided || strides.size() != sizes.size() || made.strides() == strides)
    return made;
  if (const at::Tensor* leaf = quietLeaf(edge)) {
    // The leaf keeps a gradient that has its own strides, and copies others.
    const at::Tensor& variable = *leaf;
    if (variable.layout() != at::kStrided || variable.sizes() != sizes) return made;
    if (variable.is_non_overlapping_and_dense() && !sameOrder(sizes, strides, variable.strides())) {
      strides = variable.strides();
    }
    if (!sameOrder(sizes, strides, made.strides())) return made;
  }
  const BelowAutograd scope;
  if (sameOrder(sizes, strides, made.strides())) {
    return made.as_strided(sizes, strides, made.storage_offset());
  }
  // An expanded dimension (stride 0) needs one element in memory.
  std::vector<int64_t> once(sizes.begin(), sizes.end());
  for (size_t k = 0; k < once.size(); ++k) {
    if (strides[k] == 0 && once[k] > 1) once[k] = 1;
  }
  at::Tensor base = made.as_strided(once, made.strides(), made.storage_offset());
  if (!sameOrder(once, strides, base.strides())) {
    base = at::empty_strided(once, strides, made.options()).copy_(base);
  }
  return base.as_strided(sizes, strides, base.storage_offset());
}

}  // namespace

at::Tensor layOut(at::Tensor made, const GradientLayouts::Layout& wanted, const autograd::Edge& edge) {
  at::Tensor laid = withStrides(std::move(made), wanted.strides, edge);
  if (!wanted.isView || laid.is_view() || quietLeaf(edge) != nullptr) return laid;
  return at::alias(laid);
}

}  // namespace kintsugi::torchapi
