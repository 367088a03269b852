// A frame that is over and whose frame object somebody keeps.
//
// Ownership: the object gets what the frame holds, and references to its code and function. Threads: the GIL
// is needed. Invalidation: the frame must not be used afterwards.
#pragma once

#include "pyapi/frame.h"

namespace kintsugi::pyapi {

// The frame object outlives its frame: as CPython does when a frame is left, it gets a copy of its own. The
// frame is no longer the current one, but the one below it is. The code gets a reference, the rest is taken
// over.
void keepFrameObject(PyFrameObject* object, Frame* frame);

}  // namespace kintsugi::pyapi
