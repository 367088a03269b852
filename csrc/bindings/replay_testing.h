// The `_replay_testing` submodule: runs traces that a test wrote as text, or recorded from plain tensor code.
//
// For tests and benchmarks of the executor alone, without the capture layers. Ownership: the Python object
// owns its trace. Threads: GIL. Invalidation: none.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

void bindReplayTesting(nanobind::module_& m);

}  // namespace kintsugi::bindings
