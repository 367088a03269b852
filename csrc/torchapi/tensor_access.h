// Inside torchapi only: conversions between our opaque tensor pointers and at::Tensor, and metadata of a
// TensorImpl.
//
// Ownership: as each function says. Threads: as value.h. Invalidation: none.
#pragma once

#include <ATen/core/Tensor.h>

#include "torchapi/tensor_desc.h"

namespace kintsugi::torchapi {

ir::TensorDesc describe(const at::TensorImpl& impl);
inline ir::DType dtypeOf(const at::TensorImpl& impl) {
  return static_cast<ir::DType>(c10::typeMetaToScalarType(impl.dtype()));
}
inline ir::Device deviceOf(const at::TensorImpl& impl) {
  const c10::Device device = impl.device();
  return {static_cast<int8_t>(device.type()), device.index()};
}
inline c10::ScalarType scalarTypeOf(ir::DType dtype) { return static_cast<c10::ScalarType>(dtype); }
// Compares sizes and strides alone, as far as the description fixes them. The tensor must be plain.
bool sizesMatch(const at::TensorImpl& impl, const ir::TensorDesc& info);

inline at::TensorImpl* implOf(void* impl) { return static_cast<at::TensorImpl*>(impl); }

// A new owner of the same tensor.
inline at::Tensor sharedTensor(void* impl) {
  return at::Tensor(c10::intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(implOf(impl)));
}
// Takes the reference over.
inline at::Tensor takenTensor(void* impl) {
  return at::Tensor(c10::intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>::reclaim(implOf(impl)));
}
// Gives the reference away.
inline void* givenTensor(at::Tensor&& tensor) { return tensor.unsafeReleaseTensorImpl(); }

}  // namespace kintsugi::torchapi
