// functorch's transforms (vmap and others): are any active, and what is inside the tensors that they hand
// out?
//
// Ownership: as each function says. Thread: transforms belong to a thread; GIL held.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::torchapi {

bool isWrapper(PyObject* object);           // what a transform gives to the function that it runs
bool isZeroTensor(PyObject* tensor);        // zeros without memory, of forward mode differentiation
bool transformsActive();                    // in this thread
pyapi::Ref<> innermost(PyObject* wrapper);  // the tensor in all wrappers; other tensors themselves

}  // namespace kintsugi::torchapi
