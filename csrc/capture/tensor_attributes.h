// Attributes of tensors: which reads call the dispatcher, which find a method, and which are steps.
//
// A program may give any tensor attributes of its own, and these hide the methods of its class (but no
// property, which is a data descriptor). A trace that has called `t.relu()` is for tensors without a `relu`
// of their own. Nothing here runs Python code.
#pragma once

#include "capture/attributes.h"

namespace kintsugi::capture {

// Plans reading `tensor.name`, as planAttribute() does.
AttributePlan planTensor(RecordContext& rec, Shadow shadow, PyObject* tensor, PyObject* name);
// Call it where the trace sets or deletes an attribute of the tensor.
void noteWriteToTensor(RecordContext& rec, Shadow shadow, PyObject* tensor, PyObject* name);

}  // namespace kintsugi::capture
