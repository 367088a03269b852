// The `_graph_testing` submodule: tensor graphs that a test wrote as text, as data and run natively.
//
// For tests of passes, fusion and code generation without capture. Threads: GIL, given up while kernels are
// compiled. No state.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

void bindGraphTesting(nanobind::module_& m);

}  // namespace kintsugi::bindings
