// What CPython's evaluator does, from 3.13 on, between instructions when somebody asks for it.
#include "pyapi/frame.h"

namespace kintsugi::pyapi {

bool handleEvalBreaker(PyThreadState* tstate) { return _Py_HandlePending(tstate) == 0; }

}  // namespace kintsugi::pyapi
