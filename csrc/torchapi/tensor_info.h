// Packed tensor metadata: what a guard compares and what the IR prints, read from a THPVariable without
// dispatching.
//
// Plain data apart from the type object, which it does not own (the trace's constants do). GIL: reading a
// tensor's Python type needs it; nothing else here does.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/types.h"
#include "pyapi/ref.h"

namespace kintsugi::torchapi {

struct TensorInfo {
  PyTypeObject* pyType = nullptr;  // torch.Tensor, torch.nn.Parameter or another subclass
  uint64_t keySet = 0;             // dispatch keys
  int8_t dtype = 0;                // c10::ScalarType
  int8_t deviceType = 0;
  int16_t deviceIndex = 0;
  int8_t layout = 0;
  bool requiresGrad = false;
  bool isLeaf = true;
  bool isParam = false;
  bool isConj = false;
  bool isNeg = false;
  bool plain = true;  // false: sparse, quantized, nested, functorch wrapper or with a Python dispatch key
  std::vector<int64_t> sizes;  // ir::kAnySize: not compared
  std::vector<int64_t>
      strides;             // where they are not compared: hints for compilers, or empty (tensor_info.cc)
  int8_t contiguous = -1;  // where strides are not compared: -1 neither, else whether it has to be contiguous
  int64_t storageOffset = 0;  // not compared
  bool isOpen() const;        // some size is not compared
  bool operator==(const TensorInfo&) const = default;
};

// How much of a tensor's metadata is the same in each run of a trace.
enum class MetaLevel : uint8_t {
  kUnknown,
  kRank,  // all but sizes and strides
  kFull,
};

bool isTensor(PyObject* object);           // a THPVariable, subclasses included
bool isRandomGenerator(PyObject* object);  // a torch.Generator
bool isExactTensorType(PyTypeObject* t);   // torch.Tensor or torch.nn.Parameter: no Python overrides
const void* tensorImplOf(PyObject* tensor);
TensorInfo tensorInfoOf(PyObject* tensor);
// The compare of the guards. `sizes` false: rank only.
bool matches(PyObject* tensor, const TensorInfo& info, bool sizes);
ir::TensorMeta describe(const TensorInfo& info);
// The same with those sizes open that have a bit in `dims`, and all strides if there is one.
TensorInfo opened(TensorInfo info, uint64_t dims);
// What is left when `level` of it is relied on.
TensorInfo atLevel(const TensorInfo& info, MetaLevel level);
// Full metadata as far as a guard on `model` would compare it.
TensorInfo likened(TensorInfo info, const TensorInfo& model);
// The sizes in which a tensor differs from the metadata, as bits; nothing if it differs in more than sizes
// and strides, or in strides alone.
uint64_t changedSizes(PyObject* tensor, const TensorInfo& info);
// Is it a tensor whose size is within `range`, a tuple (dimension, least, most)?
bool sizeIsBetween(PyObject* object, PyObject* range);
// Is it contiguous, in the default memory format?
bool isContiguous(PyObject* tensor);

}  // namespace kintsugi::torchapi
