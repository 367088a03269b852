// Inside the driver only: is a recording that comes from a package one that can be run? The verifiers say so
// of its text; here it is held against the objects and tables beside it, which whoever runs a trace relies
// on.
//
// GIL. No state.
#pragma once

#include <string>

#include "runtime/compiled_trace.h"

namespace kintsugi::driver {

// Empty: it can; else what is wrong.
std::string problemOf(const recording::Recording& recording);

// Can a run of `parent` that leaves at its instruction `at` go on in `side`? It does so with the values,
// sources and objects that it has (runtime/side_traces.h).
bool followsFrom(const recording::Recording& side, const recording::Recording& parent, size_t at);

}  // namespace kintsugi::driver
