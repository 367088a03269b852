// The tensor guards of a trace, compared in one loop without dispatching.
//
// Plain data that borrows the tensor and the metadata. Threads: the GIL is needed. Invalidation: `tensor` has
// to be alive when it is compared, which the guard memo sees to, and `info` as long as the check. `impl` and
// `autogradMeta` are only hints for the cache, never dereferenced.
#pragma once

#include <cstddef>

#include "torchapi/tensor_desc.h"

namespace kintsugi::torchapi {

struct TensorCheck {
  PyObject* tensor = nullptr;
  const ir::TensorDesc* info = nullptr;
  const void* impl = nullptr;  // the address of the metadata the last time
  const void* autogradMeta = nullptr;
  enum class Sizes : uint8_t { kExact, kOpen, kRank };  // kOpen: only sizes that the description fixes
  Sizes sizes = Sizes::kExact;
};

// The index of the first tensor that differs from its metadata, or `count`. Same answers as matches().
size_t firstMismatch(TensorCheck* checks, size_t count);

// True if C++ holds the tensor too (a `.grad`, a saved tensor), so that dropping the Python reference does
// not free it.
bool hasOtherOwner(PyObject* object);

}  // namespace kintsugi::torchapi
