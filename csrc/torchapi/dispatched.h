// What torch's bindings do without the dispatcher, done by operators, so that a recorder and other modes see
// it.
//
// Functions return a new reference; null with a Python exception pending. GIL held; no state.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::torchapi {

// tensor.data
PyObject* dataOf(PyObject* tensor);
// A copy that nobody else holds, with memory of its own, which no log sees. For constants of traces.
pyapi::Ref<> constantOf(PyObject* tensor);
// A new tensor with the contents of a constant.
PyObject* copyOfConstant(PyObject* constant);

}  // namespace kintsugi::torchapi
