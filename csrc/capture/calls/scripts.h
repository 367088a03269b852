// Models: TorchScript's functions and methods.
//
// A script runs no Python, and its operators reach the dispatcher, but its graph executor differentiates and
// rewrites them. So a Python function that calls the same operators is recorded in its place
// (python/kintsugi/_scripts.py). Without one, the call is a step. GIL held; the recording thread. Example: a
// row {"torch._C.ScriptFunction.__call__", scriptModel}.
#pragma once

#include "capture/call_context.h"

namespace kintsugi::capture {

// Of the C function behind `__call__`, whose first argument is the script.
Flow scriptModel(CallContext& ctx, Shadow& result);

}  // namespace kintsugi::capture
