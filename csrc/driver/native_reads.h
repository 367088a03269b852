// Which tensors of one number a plan reads with a load of its own (runtime/native_plan.h).
#pragma once

#include <optional>

#include "passes/tensor_graph.h"
#include "runtime/native_plan.h"

namespace kintsugi::driver {

// Nothing: item() is called.
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

}  // namespace kintsugi::driver
