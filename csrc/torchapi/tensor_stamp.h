// Inside torchapi only: what a recording asks of each tensor that it meets, without making an ir::TensorDesc.
//
// Ownership: none. Threads: any. GIL: not needed. Invalidation: in-place operators change the answers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace kintsugi::torchapi {

// A strided tensor with memory of its own kind: ir::TensorDesc::plain.
bool isPlain(const at::TensorImpl& impl);
// A hash of dtype, keys, sizes, strides and autograd's metadata: equal for equal metadata. It shows whether
// an in-place operator has changed its argument's metadata.
size_t metaStamp(const at::TensorImpl& impl);

}  // namespace kintsugi::torchapi
