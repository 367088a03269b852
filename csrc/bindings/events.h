// The event stream in Python.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

void bindEvents(nanobind::module_& module);

}  // namespace kintsugi::bindings
