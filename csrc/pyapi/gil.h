// Who else has run Python code meanwhile, and what waits for the running thread.
//
// Threads: each function says what it needs. Invalidation: none. Example:
//
//   const uint64_t before = pyapi::gilSwitches(tstate);
//   ...  // the GIL is released and taken back
//   if (pyapi::gilSwitches(tstate) != before) lookAgain();
#pragma once

#include <cstdint>

#include "pyapi/types.h"

namespace kintsugi::pyapi {

// How often the GIL has gone from one thread to another. The same number twice: no other thread has had it in
// between. Without the GIL it is no more than a hint.
uint64_t gilSwitches(const PyThreadState* tstate);

// Does a signal, a pending call or an asynchronous exception wait for this thread? A thread that only wants
// the GIL does not count. `tstate`: of the running thread, which need not hold the GIL.
bool mustServe(const PyThreadState* tstate);

}  // namespace kintsugi::pyapi
