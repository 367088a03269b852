// Objects with a `__del__` in Python that steps of the trace have made: progress bars, timers, connections.
//
// Such an object ends where the program drops it, which is when only the recorder holds it. The recorder asks
// this before each instruction. Then the finalizer runs as a step of the trace (pyapi/drop_reference.h),
// after which everything is read again, as after any opaque step. A replay drops its reference in that step
// and not before. So the trace has to know all the time that a frame of the program holds the object. The
// recording ends where only another object (a list, or an older object) holds it, where an opaque step has
// dropped it, and where several objects end in an unknown order. From then on each object is dropped by the
// program alone.
//
// The order in which several objects end follows from these rules. A frame that returns clears its variables
// one by one (clearLocals). A function that is called takes its arguments over (transferToCallee). An
// exception empties a stack from its top.
//
// Ownership: objects are borrowed from KeptObjects; borrows the tables that know of them. Owned by the
// Recorder, which is its host. The recording thread, GIL held. Invalidation: the end of the recording.
// Example: bar = tqdm(items); bar.update(); del bar
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/dead_objects.h"
#include "capture/kept_objects.h"
#include "capture/tables/break_log.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/known_sources.h"
#include "capture/tables/overlays.h"

namespace kintsugi::capture {

// True if the object's end can be followed: no code but its own class's `__del__` runs then.
bool hasTrackedFinalizer(PyObject* object);

class FinalizerTracker {
 public:
  // What the tracker needs from the recording.
  class Host {
   public:
    virtual ~Host() = default;
    // Ends the recording, because the end of an object can't be followed.
    virtual void endFor(const std::string& what) = 0;
    // Ends the recording, and drops all objects that the recorder holds now.
    virtual void endAndRelease(const std::string& what) = 0;
    // Called before the step that runs a finalizer; `name` is shown in reports of breaks. Returns the step's
    // snapshot, or nothing if the recording has ended.
    virtual std::optional<ir::StateId> beginFinalizer(const std::string& name) = 0;
    // Called when the finalizer is about to run. It may write to open attributes of classes.
    virtual void expectWrites() = 0;
    // Called after the finalizer of a value has run: writes the step.
    virtual void finishFinalizer(ir::ValueId value, ir::StateId snap) = 0;
  };
  // The tables that hold tracked objects, or that know who holds them.
  struct Tables {
    const BreakLog& breaks;
    ConstantPool& constants;
    KnownSources& sources;
    KeptObjects& kept;
    VirtualTable& virtuals;
    Overlays& overlays;
    const FrameStack& frames;
    CurrentInstruction& instruction;
    DeadObjects& dead;
    Pauses& pauses;
  };
  FinalizerTracker(const Tables& around, Host& host) : tables_(around), host_(host) {}

  bool empty() const { return tracked_.empty(); }
  size_t size() const { return tracked_.size(); }
  std::string firstName() const;  // the type's name of the first one, for messages
  // An exception has emptied a stack, so the newest objects end first.
  void noteUnwound() { newestFirst_ = !tracked_.empty(); }

  void track(PyObject* object, Shadow shadow);  // a step has returned the object
  void runPending();  // before an instruction: runs the finalizers of objects that have ended
  // Called in the middle of an instruction that drops two references. Objects that have ended by now are
  // moved to the front, so that their finalizers run first. True if there are any.
  bool moveEndedToFront();
  void clearLocals(ShadowFrame& frame, Activation& act);  // before the frame returns
  void transferToCallee(ShadowFrame& caller, PyCodeObject* callee);
  // Called around an opaque step, which may drop tracked objects: gives up the recorder's own references.
  // False: the recording has ended, since a replay would hold an object longer than the program does.
  bool release();
  void reclaim();
  // The recording has ended: from now on the program alone holds the objects.
  void forgetAll();
  // At the end of the call: objects that have not ended have to be part of the result.
  void checkReturned(const std::vector<ir::ValueId>& returned);

 private:
  struct Tracked {
    PyObject* object = nullptr;
    pyapi::Ref<> weak;  // tells whether a step has dropped it
    ir::ValueId value = ir::kNone;
  };
  bool isTracked(PyObject* object) const;
  bool hasEnded(const Tracked& tracked) const;
  bool isHeld(PyObject* object) const;
  bool startsAt(ir::SourceId source, ir::ValueId value) const;
  std::optional<Tracked> takeEnded(bool newestFirst);
  void runFinalizer(Tracked tracked);
  void closeDroppedGenerators();
  void dropParts(const Tracked& gone);
  Py_ssize_t ownReferences(PyObject* object) const;
  Refs takeReferences(PyObject* object);

  Tables tables_;
  Host& host_;
  std::vector<Tracked> tracked_;  // in the order in which they were made
  bool newestFirst_ = false;
};

}  // namespace kintsugi::capture
