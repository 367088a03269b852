// Tensors that the trace can't describe: sparse and quantized tensors, and tensors of subclasses.
//
// They stay objects, and operations on them are steps. Thread: the recording one, GIL held.
#pragma once

#include "capture/shadow.h"
#include "torchapi/tensor_desc.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

inline bool isForeign(Shadow shadow, PyObject* object) {
  if (!(shadow.isSource() || shadow.isConst()) || !torchapi::isTensor(object)) return false;
  if (torchapi::isWrapper(object)) return false;  // a wrapper of a transform
  return !torchapi::isExactTensorType(Py_TYPE(object)) || !torchapi::describe(object).plain;
}

}  // namespace kintsugi::capture
