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
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t storageOffset = 0;  // not compared
  bool operator==(const TensorInfo&) const = default;
};

bool isTensor(PyObject* object);          // a THPVariable, subclasses included
bool isExactTensorType(PyTypeObject* t);  // torch.Tensor or torch.nn.Parameter: no Python overrides
const void* tensorImplOf(PyObject* tensor);
TensorInfo tensorInfoOf(PyObject* tensor);
// The compare of the guards. `sizes` false: rank only.
bool matches(PyObject* tensor, const TensorInfo& info, bool sizes);
ir::TensorMeta describe(const TensorInfo& info);

}  // namespace kintsugi::torchapi
