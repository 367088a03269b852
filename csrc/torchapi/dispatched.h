// Operations that torch's bindings do without the dispatcher, done by operators instead, so that a recorder
// and other modes see them.
//
// Functions return a new reference; null with a Python exception pending. GIL held; no state.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::torchapi {

// tensor.data
PyObject* dataOf(PyObject* tensor);
// For constants of traces: a copy to which there is no other reference, with memory of its own. It is not
// logged.
pyapi::Ref<> constantOf(PyObject* tensor);
// A new tensor with the contents of a constant.
PyObject* copyOfConstant(PyObject* constant);

}  // namespace kintsugi::torchapi
