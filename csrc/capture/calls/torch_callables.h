// Tells which callables are torch's own. They are found once, by identity (pyapi/known_objects.h). GIL held.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

bool isTorchOperator(PyObject* callable);  // an object of torch.ops
// An operator of torch.profiler.record_function; nothing depends on its result.
bool isProfilerMark(PyObject* callable);
// A C function whose dispatcher calls are recorded.
bool isTorchCallable(PyObject* callable);
// A Python function of torch.nn.functional and the like, which is recorded in the same way: its result
// follows from its arguments and the guarded global state. False if its `__code__` was replaced, or while
// functions of torch are replaced.
bool isTorchFunctional(PyObject* function);

}  // namespace kintsugi::capture
