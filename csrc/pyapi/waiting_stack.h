// The value stack of a frame that waits for the one inside it and that nobody evaluates yet.
//
// Such a frame was made for a side exit: its stack has CPython's form, not that of a frame which we run
// (pyapi/frame_fields.h). Threads: the GIL is needed.
#pragma once

#include "pyapi/frame.h"

namespace kintsugi::pyapi {

// What is in the slot, from the bottom; borrowed, null: nothing. The place that an exception came from is an
// object, as on the stack of a frame that we run.
PyObject* waitingStackAt(const Frame* frame, int index);

}  // namespace kintsugi::pyapi
