// CPython's cycle collector: putting its next run off while something is recorded.
//
// A recording makes many objects that live to its end: collecting in the middle of it finds nothing and costs
// a sixth of its time. What was allocated meanwhile is not forgotten: it counts again afterwards, so that
// programs that record all the time are collected, too. GIL held; the counts are the recording thread's.
#pragma once

#include <utility>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

inline int& postponedAllocations() {
  [[gnu::tls_model("initial-exec")]] static thread_local int count = 0;
  return count;
}

// The youngest generation counts from nothing again.
inline void postponeCollection(PyThreadState* tstate) {
  int& count = tstate->interp->gc.generations[0].count;
  if (count != 0) {
    postponedAllocations() += std::exchange(count, 0);
  }
}

// The next allocation of a container starts the collection that is due.
inline void resumeCollection(PyThreadState* tstate) {
  tstate->interp->gc.generations[0].count += std::exchange(postponedAllocations(), 0);
}

// Does the collector run, in whichever thread? It calls the finalizers of what it has found.
inline bool isCollecting(PyThreadState* tstate) { return tstate->interp->gc.collecting != 0; }

}  // namespace kintsugi::pyapi
