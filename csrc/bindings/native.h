// The native backend's part of the extension module: waiting, caches, the end of the process.
//
// Threads/GIL: bindings are called with the GIL; waiting releases it.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

void bindNative(nanobind::module_& module);

}  // namespace kintsugi::bindings
