// Tensors that look like ones which are not there any more: what a backend is shown of a graph's inputs.
//
// The result is the caller's. GIL held. No state. Example: exampleOf(info) is a tensor of zeros with the
// sizes, strides, dtype, device and requires_grad that `info` says.
#pragma once

#include "pyapi/ref.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::torchapi {

// Null, without an exception: no such tensor can be made (sizes that are not known, no memory).
pyapi::Ref<> exampleOf(const ir::TensorDesc& info);

}  // namespace kintsugi::torchapi
