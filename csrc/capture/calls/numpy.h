// Which callables are numpy's own (see calls/numpy.cc). GIL held.
#pragma once

#include "capture/calls/model.h"

namespace kintsugi::capture {

bool isNumpyScalar(PyObject* object);  // a number of numpy, which can't change
bool isArray(PyObject* object);        // of numbers: nothing of the program is called when its items are read
bool isNumpyCallable(PyObject* callable);
// Made again on every run. It reads and writes arrays, of which guards read nothing but what attributes say.
Flow numpyModel(CallContext& ctx, Shadow& result);

}  // namespace kintsugi::capture
