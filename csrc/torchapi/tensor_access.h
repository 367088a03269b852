// Inside torchapi only: conversions between our opaque tensor pointers and at::Tensor, and metadata of a
// TensorImpl.
//
// Ownership: as each function says. Threads: as value.h. Invalidation: none.
#pragma once

#include <ATen/core/Tensor.h>

#include "torchapi/tensor_info.h"

namespace kintsugi::torchapi {

TensorInfo infoOf(const at::TensorImpl& impl);
// The sizes and strides alone, as far as the metadata compares them. The tensor is plain.
bool sizesMatch(const at::TensorImpl& impl, const TensorInfo& info);

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
