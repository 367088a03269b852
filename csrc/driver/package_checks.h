// Inside the driver only: can a recording that comes from a package be run? The verifiers check its text;
// here the objects and tables beside it are checked, on which running a trace relies.
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
