// Descriptions of tensors (ir/tensor_desc.h), read from a THPVariable without dispatching, and the compare of
// guards.
//
//   torch.ones(2, 3)      is described as f32[2,3] on the CPU, packed, without a gradient
//
// Plain data; the type object in a description is borrowed (the trace's constants own it). GIL: reading a
// tensor's Python type needs it; nothing else here does.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/tensor_desc.h"
#include "pyapi/ref.h"

namespace kintsugi::torchapi {

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
ir::TensorDesc describe(PyObject* tensor);
ir::TensorDesc describeImpl(const void* impl);  // without the Python type
inline PyTypeObject* pyTypeOf(const ir::TensorDesc& desc) { return static_cast<PyTypeObject*>(desc.pyType); }
// The compare of the guards. `sizes` false: rank only.
bool matches(PyObject* tensor, const ir::TensorDesc& info, bool sizes);
// The same with those sizes open that have a bit in `dims`, and all strides if there is one.
ir::TensorDesc withOpenSizes(ir::TensorDesc info, uint64_t dims);
// What is left when `level` of it is relied on.
ir::TensorDesc atLevel(const ir::TensorDesc& info, MetaLevel level);
// Full metadata as far as a guard on `model` would compare it.
ir::TensorDesc comparedLike(ir::TensorDesc info, const ir::TensorDesc& model);
// The sizes in which a tensor differs from the metadata, as bits; nothing if it differs in more than sizes
// and strides, or in strides alone.
uint64_t changedSizes(PyObject* tensor, const ir::TensorDesc& info);
// Is it a tensor whose size is within `range`, a tuple (dimension, least, most)?
bool sizeIsBetween(PyObject* object, PyObject* range);
// Is it contiguous, in the default memory format?
bool isContiguous(PyObject* tensor);

}  // namespace kintsugi::torchapi
