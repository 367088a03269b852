// kintsugi._C._call_models: the tables of models of C callables, for the tests that attack their promises.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

// Adds `_call_models()`: a list of dicts with `callable` (the row's text), `objects`, `kind` and the row's
// facts.
void bindCallModels(nanobind::module_& m);

}  // namespace kintsugi::bindings
