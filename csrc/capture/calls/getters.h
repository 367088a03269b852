// operator.itemgetter and the like: a call of one is recorded as a call of a Python function.
//
// Example: if (auto call = getterCall(rec, shadow, object, frame.code)) enter call->function with call->args
// first. Values of one instruction, GIL held.
#pragma once

#include <optional>
#include <vector>

#include "capture/calls/model.h"

namespace kintsugi::capture {

struct GetterCall {
  PyObject* function = nullptr;  // of kintsugi._polyfills: borrowed
  pyapi::Ref<> callable;         // a partial of the function; takes the getter's place
  Refs args;                     // positional ones, then those of `names`
  Shadows shadows;
  Refs names;
};

// Nothing: it is no getter, or the trace knows nothing of it.
std::optional<GetterCall> getterCall(RecordContext& rec, Shadow shadow, PyObject* getter,
                                     const PyCodeObject* caller);

}  // namespace kintsugi::capture
