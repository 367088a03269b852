// A node within a shape that it is broadcast to.
//
//   broadcastStrides(node, shape, std::equal_to<>())   sizes that are equal
//   broadcastStrides(node, shape, unify)               sizes that are taken to be equal from here on
//
// Pure function but for what `same` does; any thread, no GIL.
#pragma once

#include <optional>
#include <vector>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

// Strides by dimension of the shape, 0 where the node has one element. Nothing: it is not broadcast to that
// shape.
template <class Same>
std::optional<std::vector<Size>> broadcastStrides(const Node& node, const std::vector<Size>& shape,
                                                  Same same) {
  if (node.sizes.size() > shape.size()) {
    return std::nullopt;
  }
  std::vector<Size> strides(shape.size(), Size(0));
  const size_t shift = shape.size() - node.sizes.size();
  for (size_t d = 0; d < node.sizes.size(); ++d) {
    if (node.sizes[d] != 1 && !same(node.sizes[d], shape[d + shift])) {
      return std::nullopt;
    }
    strides[d + shift] = node.sizes[d] == 1 ? Size(0) : node.strides[d];
  }
  return strides;
}

}  // namespace kintsugi::passes
