// Inside torchapi only: making a node of autograd. Nodes have a reference count of their own; in torch 2.11
// they are held by std::shared_ptr.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <kintsugi_torch_features.h>

#include <memory>
#include <utility>

namespace kintsugi::torchapi {

// Makes a node, as the pointer type that autograd::set_history and edges take.
template <typename T, typename... Arguments>
auto makeNode(Arguments&&... arguments) {
#if KINTSUGI_TORCH_HAS_INTRUSIVE_NODES
  return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
#else
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode);
#endif
}

// A reference to a node that does not keep it.
#if KINTSUGI_TORCH_HAS_INTRUSIVE_NODES
using WeakNode = c10::weak_intrusive_ptr<torch::autograd::Node>;
#else
using WeakNode = std::weak_ptr<torch::autograd::Node>;
#endif

}  // namespace kintsugi::torchapi
