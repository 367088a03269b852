// Marks that users, and torch, have set in a function's dict.
//
// Nothing is guarded here. Python functions only; GIL held, no Python code runs.
#pragma once

#include <string>

#include "capture/call_context.h"
#include "capture/record_context.h"

namespace kintsugi::capture {

bool isDisabled(PyObject* function);  // not recorded: a step
// The reason that was given for disabling the function.
std::string disableReason(PyObject* function);
// True if torch hides the function from its own compiler because it only does bookkeeping.
bool isBookkeeping(PyObject* function);
bool isMarkedConstant(PyObject* function);  // its result is the same for the same arguments
bool isForbidden(PyObject* function);       // an error if the program calls it in compiled code
bool isMarkedAllowed(PyObject* function);   // a single step, which changes nothing
// A call of a function that is marked as allowed: a single step.
Flow allowedCall(CallContext& ctx, Shadow& result);

}  // namespace kintsugi::capture
