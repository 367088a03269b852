// What the tables ask of torch, without torch: no object is a tensor.
#include "torchapi/tensor_desc.h"

namespace kintsugi::torchapi {

bool isTensor(PyObject*) { return false; }

}  // namespace kintsugi::torchapi
