// options={"guard_filter_fn": ...}: guards that the user takes out of a trace, which are not checked then.
//
// A trace without all of its guards may run on other objects than it was recorded with. It stays memory-safe:
// sources are resolved with checks of their own, inputs have to be of the recorded kind, and segments, which
// are compiled for tensors as they were seen, are replayed where a tensor without a guard is another one
// (CompiledTrace::entryGuardsHold()). GIL needed.
#pragma once

#include "pyapi/arguments.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::driver {

// Calls `filter` with a description of each guard (python/kintsugi/_guard_filter.py says of what form), and
// takes out those for which it says False. `args`: of the call that was recorded. False: its exception is
// pending.
bool filterGuards(recording::Recording& recording, PyObject* filter, const pyapi::Arguments& args);

}  // namespace kintsugi::driver
