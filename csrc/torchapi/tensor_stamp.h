// Inside torchapi only: what a recording asks of every tensor that it meets, without making a ir::TensorDesc.
//
// Ownership: none. Threads: any. GIL: not needed. Invalidation: in-place operators change the answers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace kintsugi::torchapi {

// A strided tensor with memory of its own kind: ir::TensorDesc::plain.
bool isPlain(const at::TensorImpl& impl);
// A number for dtype, keys, sizes, strides and what autograd says: equal ones for equal metadata. Tells
// whether an operator that works in place has made another kind of tensor of its argument.
size_t metaStamp(const at::TensorImpl& impl);

}  // namespace kintsugi::torchapi
