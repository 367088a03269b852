// operator.itemgetter and its like, as the call of a Python function that they stand for.
//
// Example: if (auto call = getterCall(rec, shadow, object, frame.code)) enter call->function with call->args
// first. Values of one instruction, GIL held.
#pragma once

#include <optional>
#include <vector>

#include "capture/calls/model.h"

namespace kintsugi::capture {

struct GetterCall {
  PyObject* function = nullptr;    // of kintsugi._polyfills: borrowed
  pyapi::Ref<> callable;           // calls it with what follows before the arguments of the call
  std::vector<pyapi::Ref<>> args;  // positional ones, then those of `names`
  std::vector<Shadow> shadows;
  std::vector<pyapi::Ref<>> names;
};

// What is called to make an object like this one: its type, or the function that gives such. Borrowed.
PyObject* makerOf(PyObject* object);
// Nothing: it is no getter, or one that the trace knows nothing of.
std::optional<GetterCall> getterCall(RecordContext& rec, Shadow shadow, PyObject* getter,
                                     const PyCodeObject* caller);

}  // namespace kintsugi::capture
