// Which callables are torch's own, by rule (see calls/torch.cc). GIL held; answers are cached for good.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

bool isTorchOperator(PyObject* callable);  // an object of torch.ops
bool isProfilerMark(
    PyObject* callable);  // torch.profiler.record_function's operators: nothing depends on them
bool isTorchCallable(PyObject* callable);    // C functions whose dispatcher calls are recorded
bool isTorchFunctional(PyObject* function);  // Python functions that are treated the same way

}  // namespace kintsugi::capture
