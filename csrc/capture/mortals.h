// Objects with a `__del__` in Python that steps of the trace have made: progress bars, timers, connections.
//
// Idea: such an object ends where the program drops it. It has ended when nobody but the recorder holds it;
// that is asked before each instruction. Then its finalizer runs, as a step of the trace of its own
// (pyapi/let_go.h), behind which everything is read anew, as behind any step that is not looked into. A replay lets go of the
// object in that step and not before, so the trace has to know all the time that the program's frames hold
// it: where a step that is not looked into begins and no frame holds one of them itself (but a list, or an
// old object), where a step has let go of one, and where several go in an order that isn't known, the
// recording ends. From then on each goes by itself.
//
// What the order of several rests on: a frame that returns lets go of its variables one by one
// (Recorder::clearLocals), a function that is called takes over what it is given (Recorder::handOver), and an
// exception empties a stack from its top.
//
// Ownership: `object` is borrowed from RecorderState::kept_. The recording thread, GIL held. Invalidation: the
// end of the recording. Example: bar = tqdm(items); bar.update(); del bar
#pragma once

#include "ir/trace.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

struct Mortal {
  PyObject* object = nullptr;
  pyapi::Ref<> weak;  // tells whether a step has let go of it
  ir::SourceId source = ir::kNone;
  ir::ValueId value = ir::kNone;
};

// Can its end be followed? Not where other code would run at its end than that of its own class.
bool isMortal(PyObject* object);

}  // namespace kintsugi::capture
