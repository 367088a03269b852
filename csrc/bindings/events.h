// Binds the event stream (diag/events.h) to Python: starts and stops it, and hands out what it has recorded.
//
//   _C.events_start(); ...; _C.events_stop(); rows = _C.events_drain()      (python/kintsugi/_events.py)
//
// Ownership: none. Called once, by the extension module's init function, with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

void bindEvents(nanobind::module_& module);

}  // namespace kintsugi::bindings
