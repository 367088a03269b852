// Numbers in a plan (runtime/native_plan.h): which of them a load reads from a tensor, and the range that
// each number used by a kernel has to be in.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "passes/tensor_graph.h"
#include "runtime/native_plan.h"

namespace kintsugi::driver {

// The type by which a plan reads a number from a tensor. Nothing: the plan calls item().
inline std::optional<runtime::NativeRead::Type> readType(passes::Elem elem) {
  using Type = runtime::NativeRead::Type;
  switch (elem) {
    case passes::Elem::kF32:
      return Type::kF32;
    case passes::Elem::kF64:
      return Type::kF64;
    case passes::Elem::kI32:
      return Type::kI32;
    case passes::Elem::kI64:
      return Type::kI64;
    default:
      return std::nullopt;
  }
}

// Of numbers that kernels take: the slot, and the largest magnitude that is allowed.
inline std::vector<std::pair<uint32_t, double>> limitsOf(const passes::TensorGraph& graph,
                                                         const std::vector<uint32_t>& slotOf) {
  std::vector<std::pair<uint32_t, double>> limits;
  for (passes::NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].largest > 0 && slotOf[id] != ir::kNone) {
      limits.emplace_back(slotOf[id], graph.nodes[id].largest);
    }
  }
  return limits;
}

}  // namespace kintsugi::driver
