// kintsugi.comptime: code of the program that runs while a call is recorded, and never in a run.
//
// Such a call is executed and leaves nothing in the trace. The code may ask what has been recorded so far.
// The recording thread, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

bool isComptime(PyObject* function);  // marked as code for comptime
Flow comptimeCall(CallContext& ctx, Shadow& result);

// Describes the recording for comptime code that is running now: a new dict, or None if there is no
// recording.
//  trace: the IR as text · guards: their texts
//  frames: innermost first, each a dict of file, line, function, code, offset, locals and stack
//  locals: name -> (object, text of its shadow); stack: a list of such pairs
PyObject* describeRecording();

}  // namespace kintsugi::capture
