// CPython's cycle collector: putting its next run off.
//
// No state; GIL held.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// The youngest generation counts from nothing again. A recording makes many objects that live to its end:
// collecting in the middle of it finds nothing and costs a sixth of its time.
inline void postponeCollection(PyThreadState* tstate) { tstate->interp->gc.generations[0].count = 0; }

}  // namespace kintsugi::pyapi
