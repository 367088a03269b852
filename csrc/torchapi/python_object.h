// The Python object of a tensor, which it may not have: most results of operators in a run have none.
//
// Threads: GIL. Ownership: borrowed from the tensor.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::torchapi {

// Null: nobody has asked for one, so it has no attributes either. `impl`: a TensorImpl.
PyObject* pythonObjectOf(const void* impl);

}  // namespace kintsugi::torchapi
