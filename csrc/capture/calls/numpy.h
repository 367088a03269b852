// Which callables and objects are numpy's own, and the models of its callables.
//
// A function of numpy's is called as a step of the trace: `np.sqrt(array)` is made again in each run. What it
// gives is a number or an array whose items run no code of the program. See calls/numpy.cc.
//
// Ownership: arguments are borrowed. Threads: the recording one, GIL held. numpy is not imported for this: if
// the program has not done so, nothing is numpy's.
#pragma once

#include "capture/call_context.h"
#include "capture/interpreter.h"

namespace kintsugi::capture {

bool isNumpyScalar(PyObject* object);  // a number of numpy, which can't change
// An array of numbers, so that reading its items calls no code of the program.
bool isArray(PyObject* object);
bool isNumpyCallable(PyObject* callable);
// ndarray.resize(), which raises where somebody besides its caller refers to the array.
bool countsReferences(PyObject* callable);
// Finds numpy's callables, the first time, if numpy is imported: see findTorchCallables().
void findNumpyCallables();
// Ends the recording, since the recorder and a replay refer to arrays, too.
Flow countingModel(CallContext& ctx, Shadow& result);
// A step that each run makes again. It reads and writes arrays, of which guards read only attributes.
Flow numpyModel(CallContext& ctx, Shadow& result);

}  // namespace kintsugi::capture
