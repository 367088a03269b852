// functorch's transforms (vmap and others): whether any is active, and the tensors inside of their wrappers.
//
//   torch.vmap(f)(x)      in f, the argument is a wrapper around x, with one dimension less
//
// Ownership: as each function says. Thread: transforms belong to a thread; GIL held.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::torchapi {

bool isWrapper(PyObject* object);           // a wrapper that a transform passes to its function
bool isZeroTensor(PyObject* tensor);        // zeros without memory, used by forward-mode differentiation
bool transformsActive();                    // in this thread
pyapi::Ref<> innermost(PyObject* wrapper);  // the tensor inside all wrappers; for others the tensor itself

}  // namespace kintsugi::torchapi
