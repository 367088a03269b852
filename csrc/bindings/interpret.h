// Bindings of interpret-everything mode; called once by the extension module's init function.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi {

void bindInterpreter(nanobind::module_& m);

}  // namespace kintsugi
