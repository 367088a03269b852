// Objects with a `__del__` in Python that steps of the trace have made: progress bars, timers, connections.
//
// Idea: such an object ends where the program drops it. It has ended when nobody but the recorder holds it;
// that is asked before each instruction. Then its finalizer runs, as a step of the trace of its own
// (pyapi/drop_reference.h), after which everything is read again, as after any step that is not looked into.
// A replay drops its reference to the object in that step and not before, so the trace has to know all the
// time that the program's frames hold it: where no frame holds one itself (but a list, or an old object),
// where a step that is not looked into has dropped one, and where several would go in an order that isn't
// known, the recording ends. From then on each goes by itself.
//
// What the order of several rests on: a frame that returns drops its reference to its variables one by one
// (clearLocals), a function that is called takes over what it is given (transferToCallee), and an exception
// empties a stack from its top.
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

// Can its end be followed? Not where other code would run at its end than that of its own class.
bool hasTrackedFinalizer(PyObject* object);

class FinalizerTracker {
 public:
  // What the tracker asks of the recording.
  class Host {
   public:
    virtual ~Host() = default;
    // The recording has to end: the object's end can't be followed.
    virtual void endFor(const std::string& what) = 0;
    // The same, and everything that the recorder holds goes now.
    virtual void endAndRelease(const std::string& what) = 0;
    // Before the step that runs a finalizer, called `name` where breaks are told: its snapshot. Nothing: the
    // recording has ended.
    virtual std::optional<ir::StateId> beginFinalizer(const std::string& name) = 0;
    // The finalizer is about to run: it may write to open attributes of classes.
    virtual void expectWrites() = 0;
    // The finalizer of a value has run: writes the step.
    virtual void finishFinalizer(ir::ValueId value, ir::StateId snap) = 0;
  };
  // The tables that hold such objects, or tell who does.
  struct Around {
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
  FinalizerTracker(const Around& around, Host& host) : around_(around), host_(host) {}

  bool empty() const { return tracked_.empty(); }
  size_t size() const { return tracked_.size(); }
  std::string firstName() const;  // of its type, for messages
  // An exception has emptied a stack: the newest ones go first.
  void noteUnwound() { newestFirst_ = !tracked_.empty(); }

  void track(PyObject* object, Shadow shadow);  // a step gave it
  void runPending();  // before an instruction: the finalizers of those that have ended
  // In an instruction that drops its reference to two objects, between the two: those that end with the first
  // one are the first whose finalizers run. True: there are such.
  bool putEndedFirst();
  void clearLocals(ShadowFrame& frame, Activation& act);  // before the frame returns
  void transferToCallee(ShadowFrame& caller, PyCodeObject* callee);
  // Around a step that is not looked into, which may drop them. False: the recording has ended, since a
  // replay would hold one longer than the program does.
  bool release();
  void reclaim();
  // The recording has ended: they are the program's alone.
  void forgetAll();
  // At the end of the call: those that have not ended have to be part of the result.
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
  std::vector<pyapi::Ref<>> takeReferences(PyObject* object);

  Around around_;
  Host& host_;
  std::vector<Tracked> tracked_;  // in the order in which they came to be
  bool newestFirst_ = false;
};

}  // namespace kintsugi::capture
