// Which callables are numpy's own (see calls/numpy.cc). GIL held.
#pragma once

#include "capture/calls/model.h"

namespace kintsugi::capture {

bool isNumpyScalar(PyObject* object);  // a number of numpy, which can't change
// An array of numbers, so that reading its items calls no code of the program.
bool isArray(PyObject* object);
bool isNumpyCallable(PyObject* callable);
// ndarray.resize(), which raises where somebody besides its caller refers to the array.
bool countsReferences(PyObject* callable);
// Ends the recording, since the recorder and a replay refer to arrays, too.
Flow countingModel(CallContext& ctx, Shadow& result);
// A step that each run makes again. It reads and writes arrays, of which guards read only attributes.
Flow numpyModel(CallContext& ctx, Shadow& result);

}  // namespace kintsugi::capture
