// Objects with a `__del__` in Python that steps of the trace have made: progress bars, timers, connections.
//
// Idea: such an object ends where the program drops it. It has ended when nobody but the recorder holds it;
// that is asked before each instruction. Then its finalizer runs, as a step of the trace of its own
// (pyapi/drop_reference.h), behind which everything is read anew, as behind any step that is not looked into.
// A replay lets go of the object in that step and not before, so the trace has to know all the time that the
// program's frames hold it: where no frame holds one itself (but a list, or an old object), where a step that
// is not looked into has let go of one, and where several would go in an order that isn't known, the
// recording ends. From then on each goes by itself.
//
// What the order of several rests on: a frame that returns lets go of its variables one by one
// (clearLocals), a function that is called takes over what it is given (handOver), and an exception empties
// a stack from its top.
//
// Ownership: `object` is borrowed from RecorderState::kept_. The recording thread, GIL held. Invalidation:
// the end of the recording. Example: bar = tqdm(items); bar.update(); del bar
#pragma once

#include "capture/shadow.h"

namespace kintsugi::capture {

class Recorder;

struct Mortal {
  PyObject* object = nullptr;
  pyapi::Ref<> weak;  // tells whether a step has let go of it
  ir::SourceId source = ir::kNone;
  ir::ValueId value = ir::kNone;
};

// Can its end be followed? Not where other code would run at its end than that of its own class.
bool isMortal(PyObject* object);

// What the recorder does with RecorderState::mortals_.
class Mortals {
 public:
  static void follow(Recorder& rec, PyObject* object, Shadow shadow);  // a step gave it
  static void settle(Recorder& rec);  // before an instruction: those that have ended
  // In an instruction that lets go of two objects, between the two: all that ends with the first, whoever it
  // is, ends before what goes with the second.
  static void endFirst(Recorder& rec);
  static void clearLocals(Recorder& rec, ShadowFrame& frame, Activation& act);  // before it returns
  static void handOver(Recorder& rec, ShadowFrame& caller, PyCodeObject* callee);
  // Around a step that is not looked into, which may let go of them. False: the recording has ended, since a
  // replay would hold one longer than the program does.
  static bool release(Recorder& rec);
  static void takeBack(Recorder& rec);
  static void end(Recorder& rec);    // of the recording: they are the program's alone
  static void check(Recorder& rec);  // at the end of the call

 private:
  static void drop(Recorder& rec, Mortal mortal);
  static bool usesEndThere(const Recorder& rec);
};

}  // namespace kintsugi::capture
