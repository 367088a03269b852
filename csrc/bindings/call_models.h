// kintsugi._C._call_models: the tables of models of C callables, for exports and for the tests that attack
// their promises.
#pragma once

#include <nanobind/nanobind.h>

namespace kintsugi::bindings {

// Adds `_call_models()`: a list of dicts with `callable` (the row's text), `objects`, `kind` and the row's
// facts. And `_call_model(callable)`: the row that the recorder goes by at a call of it, or None.
void bindCallModels(nanobind::module_& m);

}  // namespace kintsugi::bindings
