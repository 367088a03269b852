// Which callables are torch's own: by identity, found once (pyapi/known_objects.h). GIL held.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

bool isTorchOperator(PyObject* callable);  // an object of torch.ops
// torch.profiler.record_function's operators: nothing depends on them
bool isProfilerMark(PyObject* callable);
// C functions whose dispatcher calls are recorded
bool isTorchCallable(PyObject* callable);
// Python functions of torch.nn.functional and the like, which are treated the same way: functions of their
// arguments and the guarded global state. One whose `__code__` has been replaced is another function.
// Not while somebody has replaced functions of torch's.
bool isTorchFunctional(PyObject* function);

}  // namespace kintsugi::capture
