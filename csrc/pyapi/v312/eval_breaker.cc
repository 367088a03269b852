// Serves signals and other requests between instructions, in CPython 3.12.
//
// Signals, pending calls, asynchronous exceptions, the GIL and the collector are served by functions that
// CPython does not export. They run, among other places, when a function begins. So an empty function is
// called.
#include "pyapi/frame.h"
#include "pyapi/gil.h"
#include "pyapi/lazy.h"
#include "pyapi/opcodes.h"
#include "pyapi/ref.h"
#include "pyapi/v312/service.h"

namespace kintsugi::pyapi {

bool handleEvalBreaker(PyThreadState* tstate) {
  static constinit Lazy<PyObject*> slot;
  static constexpr uint8_t kNothing[] = {raw::RESUME, 0, raw::RETURN_CONST, 0};
  PyObject* service = slot.get([] { return makeService(0, kNothing); });
  if (service == nullptr) {  // no memory: a later check serves them
    PyErr_Clear();
    return true;
  }
  // The call must not count as recursion: it may come where the recursion limit is just not exceeded.
  constexpr int kLevels = 4;
  tstate->py_recursion_remaining += kLevels;
  tstate->c_recursion_remaining += kLevels;
  const Ref<> done = steal(PyObject_CallNoArgs(service));
  tstate->py_recursion_remaining -= kLevels;
  tstate->c_recursion_remaining -= kLevels;
  return static_cast<bool>(done);
}

uint64_t gilSwitches(const PyThreadState* tstate) { return tstate->interp->ceval.gil->switch_number; }

bool mustServe(const PyThreadState* tstate) {
  PyInterpreterState* interp = tstate->interp;
  const auto isSet = [](const auto& flag) { return _Py_atomic_load_relaxed(&flag) != 0; };
  const bool isMain = _Py_ThreadCanHandleSignals(interp) != 0;
  const bool calls = isSet(interp->ceval.pending.calls_to_do) ||
                     (isMain && isSet(_PyRuntime.ceval.pending_mainthread.calls_to_do));
  return (isMain && isSet(_PyRuntime.ceval.signals_pending)) || calls || tstate->async_exc != nullptr;
}

}  // namespace kintsugi::pyapi
