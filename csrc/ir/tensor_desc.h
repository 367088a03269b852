// The one description of a tensor: what a guard compares, what the text of a trace prints, and what native
// code is made for.
//
// Plain data: no Python, no torch. What only torch can tell (dispatch keys, the Python type) is opaque here;
// torchapi/tensor_desc.h fills a description from a tensor and compares a tensor with one. The type object is
// not owned (the trace's constants do that). Thread-safe as long as no thread writes. Example:
// TensorDesc::packed(DType::kF32, {2, 3}) is what `tensor<f32,[2,3],cpu>` reads as.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/dtype.h"

namespace kintsugi::ir {

inline constexpr int64_t kAnySize = -1;  // a size that may be another one in each run; printed as `?`

// Where elements are in memory, counted in elements. `Number` is a number, or an expression of symbols
// (passes/size.h).
template <typename Number>
struct Strided {
  std::vector<Number> sizes;
  std::vector<Number> strides;
  bool operator==(const Strided&) const = default;
};

// The strides of a tensor of these sizes that is new.
std::vector<int64_t> packedStrides(const std::vector<int64_t>& sizes);

struct TensorLayout : Strided<int64_t> {
  DType dtype = DType::kF32;
  bool operator==(const TensorLayout&) const = default;
};

// Of a tensor some size of which is not compared.
enum class Contiguity : int8_t { kEither = -1, kStrided, kContiguous };

// Printed as `tensor<f32,[32,64],cpu>`; strides only where they are not packed (`strides=[1,32]`), then the
// flags `grad` and `param`. With a size that varies nothing is said of the strides, unless it is `contiguous`
// or `strided`.
struct TensorDesc : TensorLayout {  // sizes: kAnySize is not compared; strides: none if a size is not
  Device device;
  Contiguity contiguity = Contiguity::kEither;
  bool requiresGrad = false;
  bool isLeaf = true;
  bool isParam = false;
  bool isConj = false;
  bool isNeg = false;
  bool plain = true;    // false: sparse, quantized, nested, functorch wrapper or with a Python dispatch key
  int8_t layout = 0;    // torch's
  uint64_t keySet = 0;  // dispatch keys
  void* pyType = nullptr;  // torch.Tensor, torch.nn.Parameter or another subclass
  // Of a tensor some size of which is not compared: what they were when it was recorded. Compilers take them
  // for likely.
  Strided<int64_t> hints;

  // Some size is not compared.
  bool isOpen() const;
  bool isFixed() const { return !isOpen(); }
  // It has strides of its own to be printed: such as a new tensor would not have.
  bool hasOwnStrides() const;
  // Does it lie in memory without gaps, in order, as far as its strides are known? Those of sizes of 1 do not
  // count.
  bool isContiguous() const;
  // Sizes and strides, as they were seen where they vary. Null: that is not known.
  const Strided<int64_t>* seen() const;

  static TensorDesc packed(DType dtype, std::vector<int64_t> sizes);  // a new one on the CPU
  bool operator==(const TensorDesc&) const = default;
};

}  // namespace kintsugi::ir
