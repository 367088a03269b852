// Code of the program's that runs while a call is recorded, and never in a run: kintsugi.comptime.
//
// Such a call is executed and leaves nothing in the trace. It may ask what has been recorded up to here. The
// recording thread, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

bool isComptime(PyObject* function);  // marked as such code
Flow comptimeCall(CallContext& ctx, Shadow& result);

// What has been recorded, for the code that is being executed so: a new dict, or None where there is none.
//   trace: the IR as text · guards: their texts
//   frames: innermost first, each a dict of file, line, function, code, offset, locals and stack
//   locals: name -> (object, what it is to the trace); stack: a list of such pairs
PyObject* describeRecording();

}  // namespace kintsugi::capture
