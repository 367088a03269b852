// CPython's cycle collector: postpones its next run while something is recorded, and tells its callbacks.
//
// A recording makes many objects that live to its end. A collection in the middle of it would find nothing,
// and would cost a sixth of its time. Allocations in the meantime are counted afterwards, so programs that
// record all the time are collected too. GIL held; the counts are the recording thread's.
#pragma once

#include <utility>

#include "pyapi/frame.h"
#include "pyapi/internal.h"

namespace kintsugi::pyapi {

inline int& postponedAllocations() {
  [[gnu::tls_model("initial-exec")]] static thread_local int count = 0;
  return count;
}

// The allocation count of the youngest generation starts from zero.
inline void postponeCollection(PyThreadState* tstate) {
  int& count = tstate->interp->gc.generations[0].count;
  if (count != 0) {
    postponedAllocations() += std::exchange(count, 0);
  }
}

// Restores the count, so that the next allocation of a container starts the collection that is due.
inline void resumeCollection(PyThreadState* tstate) {
  tstate->interp->gc.generations[0].count += std::exchange(postponedAllocations(), 0);
}

// True if the collector is running, in whichever thread. It calls finalizers of the objects that it has
// found.
inline bool isCollecting(PyThreadState* tstate) { return tstate->interp->gc.collecting != 0; }

// True if the frame runs a function of the list gc.callbacks for a collection that is under way. The
// collector may call it in the middle of any instruction. Libraries install such functions to measure it.
bool isCollectorCallback(PyThreadState* tstate, Frame* frame);

}  // namespace kintsugi::pyapi
