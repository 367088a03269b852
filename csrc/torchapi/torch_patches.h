// Detects objects in torch's namespaces that somebody has replaced: `torch.relu = f`,
// mock.patch("torch.Tensor.cos").
//
// The recorder does not look into functions of torch.nn.functional and operators of tensors, because it knows
// what they do. That holds only while nobody has replaced what they use: the names that these functions read
// in their modules, and the attributes of torch.Tensor. A number, the epoch, stands for what is replaced at
// the moment, and traces are guarded by it. It is found by comparing the versions of some dicts, and their
// contents if a version has changed.
//
// Example: during mock.patch("torch.relu") the epoch differs from the trace's; afterwards it is the same
// again.
//
// Ownership: holds the namespaces, what torch has put there, and what is there now. Threads: the GIL is
// needed. No pending exception is lost, and none is left. Invalidation: none.
#pragma once

#include <cstdint>

#include "pyapi/ref.h"

namespace kintsugi::torchapi {

struct TorchPatches {
  uint64_t epoch = 0;      // 0: nothing has been replaced
  bool operators = false;  // special methods of tensors have been replaced
};
const TorchPatches& torchPatches();

// True for a method of tensors that torch itself has put there.
bool isTorchMethod(PyObject* descriptor);

}  // namespace kintsugi::torchapi
