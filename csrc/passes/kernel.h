// A fused kernel: what the code generator makes one function of. Data only.
//
// The iteration space is `sizes`: outer dimensions and, last, the inner one. Element by element kernels have
// one stage. Where there are reductions, the inner dimension is a row: stage s is a loop over the row that
// computes the reductions of stage s, and what needs their results comes in stage s + 1. Vectors run along
// the inner dimension or, of `columns`, along the last of the outer ones: many rows at once, an element of
// each. Extents and strides are arguments of the function, so kernels of equal structure (key()) share code
// whatever the sizes.
//
// A product is a matrix product whose elements the other ops take while they are in the cache: rows are its
// rows, the inner dimension its columns. It is computed in strips of columns, for a chunk of rows each.
#pragma once

#include <optional>
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
  bool uniform = false;  // the same all along the inner dimension
  // A load whose memory lies along the last outer dimension: moved in squares, then as if it lay along the
  // inner one.
  bool transposed = false;
  // A load that takes each element for so many neighbours along the inner dimension.
  uint32_t repeat = 1;
  bool operator==(const KernelAccess&) const = default;
};

enum class KernelOpKind : uint8_t { kLoad, kConst, kPoint, kReduce, kProduct, kScore };

struct KernelOp {
  KernelOpKind kind = KernelOpKind::kPoint;
  Core op = Core::kAdd;
  Elem elem = Elem::kF32;
  std::vector<uint32_t> args;     // ops before it
  uint32_t access = 0;            // kLoad
  std::vector<PartBound> bounds;  // Core::kPart: of dimensions of the kernel
  IndexedDim indexed;             // Core::kTake, whose first argument is a load
  double number = 0;              // kConst
  int64_t integer = 0;
};

struct KernelStore {
  uint32_t op = 0;
  uint32_t access = 0;
};

struct KernelProduct {
  uint32_t left = 0, right = 0;  // accesses
  bool rightByColumns = false;
  bool batched = false;  // many: rows are the last outer dimension, not all of them
  int64_t k = 0;
  int64_t leftStride = 0, rightStride = 0;  // from row to row; of the second perhaps from column to column
  int64_t chunk = 0;                        // rows
  int64_t depth = 0;                        // of k that is packed at once
  // For every target: a strip is a multiple of the columns of its tiles, and `depth` is at most kMaxDepth.
  static constexpr int64_t kStrip = 64;  // columns
  static constexpr int64_t kMaxDepth = 512;
};

// Attention: accesses 0, 1 and 2 are queries, keys and values, by batch, head, row and element; what is added
// to scores and the like lies by batch, head, query and key. The ops make a score of a product (kScore, the
// first op); the store's is what softmax is taken of. Sizes are those of the result.
struct KernelAttention {
  int64_t headSize = 0, valueSize = 0;  // of a key, of a value: constants of the code
  Size keys;
  int64_t group = 1;       // so many heads share keys and values
  bool causal = false;     // query i sees keys 0 to i
  bool emptyZero = false;  // a query that sees no key gets zeros, not NaN
  // Few queries: vectors run along keys, and the second of `sizes` counts heads of keys.
  bool few = false;
  // Queries that a thread takes at once: a multiple of the columns of every target's tiles.
  static constexpr int64_t kChunk = 64;
  static constexpr int64_t kMaxSize = 256;
};

struct Kernel {
  std::vector<Size> sizes;  // at least the inner extent
  std::vector<KernelAccess> accesses;
  std::vector<KernelOp> ops;
  std::vector<KernelStore> stores;
  bool hasReductions = false;
  std::optional<KernelProduct> product;
  std::optional<KernelAttention> attention;
  bool columns = false;   // vectors run along the last outer dimension
  bool longRows = false;  // too long to keep values of a row, or to add them up one after the other
  bool over = false;      // stores over what it reads, so that at each place all is read before all is stored

  size_t outerRank() const { return sizes.size() - 1; }
  // Is there anything that it may find wrong with what it reads?
  bool checks() const;
  // How many `numbers` its function takes: extents, strides, bounds, and those of a product or attention.
  size_t numberCount() const;
  // What code generation relies on, as checks: ops use earlier ops and accesses of the kernel, and each
  // access has a stride for each dimension.
  void checkForm() const;
  // Of kernels with the same code; also a text for people.
  std::string key() const;
};

}  // namespace kintsugi::passes
