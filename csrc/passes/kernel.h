// A fused kernel: what the code generator makes one function of. Data only.
//
// The iteration space is `sizes`: outer dimensions and, last, the inner one. Element by element kernels have
// one stage. Where there are reductions, the inner dimension is a row: stage s is a loop over the row that
// computes the reductions of stage s, and what needs their results comes in stage s + 1. Vectors run along
// the inner dimension or, of `columns`, along the last of the outer ones: many rows at once, an element of
// each. Extents and strides are arguments of the function, so kernels of equal structure (key()) share code
// whatever the sizes.
#pragma once

#include <string>
#include <vector>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

enum class Inner : uint8_t { kUnit, kZero, kStrided };  // the stride of the dimension that vectors run along

struct KernelAccess {
  NodeId node = ir::kNone;  // whose memory
  Elem elem = Elem::kF32;
  bool store = false;
  int64_t offset = 0;         // elements
  std::vector<Size> strides;  // by dimension of the kernel, in elements
  Inner inner = Inner::kUnit;
  bool still = false;  // the same all along the inner dimension
  bool operator==(const KernelAccess&) const = default;
};

enum class KernelOpKind : uint8_t { kLoad, kConst, kPoint, kReduce };

struct KernelOp {
  KernelOpKind kind = KernelOpKind::kPoint;
  Core op = Core::kAdd;
  Elem elem = Elem::kF32;
  std::vector<uint32_t> args;     // ops before it
  uint32_t access = 0;            // kLoad
  std::vector<PartBound> bounds;  // Core::kPart: of dimensions of the kernel
  double number = 0;              // kConst
  int64_t integer = 0;
};

struct KernelStore {
  uint32_t op = 0;
  uint32_t access = 0;
};

struct Kernel {
  std::vector<Size> sizes;  // at least the inner extent
  std::vector<KernelAccess> accesses;
  std::vector<KernelOp> ops;
  std::vector<KernelStore> stores;
  bool hasReductions = false;
  bool columns = false;   // vectors run along the last outer dimension
  bool longRows = false;  // too long to keep values of a row, or to add them up one after the other

  size_t outerRank() const { return sizes.size() - 1; }
  // Of kernels with the same code; also a text for people.
  std::string key() const;
};

}  // namespace kintsugi::passes
