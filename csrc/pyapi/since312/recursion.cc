// The recursion limit, since CPython 3.12.
#include "pyapi/frame.h"

namespace kintsugi::pyapi {

bool recursionLimitHit(PyThreadState* tstate, const char* where) {
  if (tstate->recursion_headroom != 0) {
    if (tstate->py_recursion_remaining < -50) {
      Py_FatalError("Cannot recover from Python stack overflow.");
    }
    return false;
  }
  if (tstate->py_recursion_remaining > 0) return false;
  tstate->recursion_headroom++;
  PyErr_Format(PyExc_RecursionError, "maximum recursion depth exceeded%s", where);
  tstate->recursion_headroom--;
  ++tstate->py_recursion_remaining;
  return true;
}

}  // namespace kintsugi::pyapi
