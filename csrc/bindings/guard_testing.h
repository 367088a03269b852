// Guards for the Python tests: builds guard programs without a recorder and checks them.
//
// Testing only; nothing of the product uses it. Threads: the GIL. Ownership: the programs own what they
// borrow from.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

void bindGuardTesting(nanobind::module_& module);

}  // namespace kintsugi::bindings
