// Serves signals and other requests between instructions, since CPython 3.13.
#include "pyapi/frame.h"
#include "pyapi/gil.h"

namespace kintsugi::pyapi {

bool handleEvalBreaker(PyThreadState* tstate) { return _Py_HandlePending(tstate) == 0; }

uint64_t gilSwitches(const PyThreadState* tstate) { return tstate->interp->ceval.gil->switch_number; }

bool mustServe(const PyThreadState* tstate) {
  constexpr uintptr_t kRequests = _PY_SIGNALS_PENDING_BIT | _PY_CALLS_TO_DO_BIT | _PY_ASYNC_EXCEPTION_BIT;
  return (__atomic_load_n(&tstate->eval_breaker, __ATOMIC_RELAXED) & kRequests) != 0;
}

}  // namespace kintsugi::pyapi
