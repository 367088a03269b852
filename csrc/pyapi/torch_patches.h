// Does everybody in torch's namespaces stand where torch has put them? `torch.relu = f`,
// mock.patch("torch.Tensor.cos").
//
// The recorder does not look into the functions of torch.nn.functional and the operators of tensors: it knows
// what they do. It does so only while nobody has replaced what they use: the names that these functions read
// in the modules that they see, and the attributes of torch.Tensor. A number stands for who has replaced
// what; traces are guarded by it. The versions of some dicts are compared, and their contents where one has
// changed.
//
// Example: mock.patch("torch.relu") around a call: the epoch is another one than that of the trace, after it
// the same.
//
// Ownership: namespaces, what torch has put there and what stands there now are kept. Threads: the GIL is
// needed. No pending exception is lost, and none is left. Invalidation: none.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

struct TorchPatches {
  uint64_t epoch = 0;      // 0: nothing has been replaced
  bool operators = false;  // special methods of tensors are among what has been
};
const TorchPatches& torchPatches();

// Is it a method of tensors that torch has put there?
bool isTorchMethod(PyObject* descriptor);

}  // namespace kintsugi::pyapi
