// Serves signals and other requests between instructions, since CPython 3.13.
#include "pyapi/frame.h"

namespace kintsugi::pyapi {

bool handleEvalBreaker(PyThreadState* tstate) { return _Py_HandlePending(tstate) == 0; }

}  // namespace kintsugi::pyapi
