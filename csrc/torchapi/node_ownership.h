// Inside torchapi only: making a node of autograd. Nodes hold their own count; in torch 2.11 std::shared_ptr
// has it.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <kintsugi_torch_features.h>

#include <memory>
#include <utility>

namespace kintsugi::torchapi {

// What autograd::set_history and edges take: the only owner of a new node.
template <typename T, typename... Arguments>
auto makeNode(Arguments&&... arguments) {
#if KINTSUGI_TORCH_HAS_INTRUSIVE_NODES
  return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
#else
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode);
#endif
}

}  // namespace kintsugi::torchapi
