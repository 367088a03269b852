// Which callables are torch's own, so that their calls are recorded as operators of the dispatcher.
//
//   isTorchCallable(torch.add)                          a C function: true
//   isTorchFunctional(torch.nn.functional.relu)         a Python function of torch's: true
//   isTorchOperator(torch.ops.aten.add.Tensor)          true
//
// They are found once, by identity (pyapi/known_objects.h). Ownership: arguments are borrowed. Threads: the
// recording one, GIL held.
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

// Finds them, the first time. The package asks for it when it is imported, as for registerModels().
void findTorchCallables();

}  // namespace kintsugi::capture
