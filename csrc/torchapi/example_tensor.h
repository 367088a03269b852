// Example tensors: zeros that look like an input of a graph which no longer exists, to show to a backend.
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
