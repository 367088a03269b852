// What users, and torch, have said of a function: marks in its dict.
//
// Nothing is guarded here. Python functions only; GIL held, no Python code runs.
#pragma once

#include <string>

#include "capture/call_context.h"
#include "capture/record_context.h"

namespace kintsugi::capture {

bool isDisabled(PyObject* function);  // not to be recorded
// Why recording was switched off for it.
std::string disableReason(PyObject* function);
// Switched off by torch for functions of its own that keep books.
bool isBookkeeping(PyObject* function);
bool isMarkedConstant(PyObject* function);           // its result is the same for the same arguments
bool isForbidden(PyObject* function);                // the program is not to call it in compiled code
bool isMarkedAllowed(PyObject* function);            // one instruction: it changes nothing
Flow allowedCall(CallContext& ctx, Shadow& result);  // a call of such a one

}  // namespace kintsugi::capture
