// What the recorder knows: the tables behind Recorder, apart from what it does with them.
//
// Invariants: every object that is a key by its identity is kept alive by `kept_`, a Virtual or an Overlay,
// so that no address means two objects at one time; vectors "by SourceId" have one element for each
// source of the document. Owned by the Recorder; the recording thread, GIL held; dies with the recording.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/call_context.h"
#include "capture/capture_result.h"
#include "capture/droppable.h"
#include "capture/finalized.h"
#include "capture/kept_objects.h"
#include "capture/mortals.h"
#include "capture/transforms.h"
#include "pyapi/known_objects.h"
#include "support/flat_map.h"

namespace kintsugi::capture {

// What the trace has written to an object that is older than it.
struct Overlay {
  pyapi::Ref<> object;
  pyapi::Ref<> attrs;
  pyapi::Ref<> entries;
  pyapi::Ref<> deleted;
  pyapi::Ref<> fresh;        // of a dict: a dict of the keys that it did not have
  Py_ssize_t grown = 0;      // by how much a dict is longer than it was
  std::vector<Shadow> tail;  // of a list: what was appended to elements that nobody has asked for
  std::optional<std::vector<Shadow>> parts;  // of a list: all elements, once it was changed otherwise
  bool dirty = false;                        // changed in a way that is not tracked
  // A key was set of which it does not matter whether it was there.
  bool lengthUnknown() const { return static_cast<bool>(fresh); }
  PyObject* deletedKeys();
  bool added(PyObject* key);
  void written(PyObject* dict, PyObject* key, PyObject* encoded);  // before it is
};

// A generator that is being consumed whole, and what it has given.
struct Collector {
  Virtual* generator;
  std::vector<Shadow> items;
};

// A frame of the snapshot that a side trace begins with. `waiting` stands for the call that is under way in
// it.
struct RestoredFrame {
  ShadowFrame* frame = nullptr;
  ir::ReturnAction action = ir::ReturnAction::kPush;  // what it does with the inner frame's result
  Shadow replacement;
  Instr waiting;
  Activation waitingAct{};
};

// (tensor value, operation, dimension) -> the value that a read of a size has given, plus 1; 0: not read yet.
using SizeValues = std::map<std::tuple<ir::ValueId, int32_t, int32_t>, ir::ValueId>;

// An exception that others hold was raised; what it said before that.
struct Raised {
  pyapi::Ref<> exception;
  pyapi::Ref<> traceback;
  pyapi::Ref<> context;
  pyapi::Ref<> cause;
  bool suppress = false;
  bool byStep = false;
  bool caught = false;
};

// What guards on classes rest on, before an instruction that may change classes.
struct ClassVersions {
  std::vector<std::pair<size_t, pyapi::Ref<>>> guards;       // those that hold, with the order of look-up
  std::unordered_map<PyTypeObject*, uint64_t> dicts;         // the versions of the classes' dicts
  std::unordered_map<PyTypeObject*, pyapi::Ref<>> contents;  // of those with attributes that are open
};

struct RecorderState {
  RecorderOptions options_;
  guard::Document document_;
  torchapi::OpRecorder ops_;
  torchapi::GlobalState entryState_;
  pyapi::Ref<> handledOutside_;  // the exception that the caller handles
  std::vector<Raised> raised_;   // see exceptions.h
  std::vector<pyapi::Ref<>> consts_;
  FlatMap<PyObject*, ir::ConstId> constIds_;
  std::vector<std::unique_ptr<Virtual>> virtuals_;
  FlatMap<PyObject*, uint32_t> virtualIds_;
  Droppable droppable_;                         // among virtuals_
  std::vector<uint32_t> iterators_;             // among virtuals_: those that may still be asked
  std::vector<uint32_t> classes_;               // among virtuals_: classes that the trace has made
  FlatMap<PyObject*, ir::SourceId> sourceIds_;  // identity of old objects
  std::unordered_set<PyObject*>
      frozen_;  // immutable, and known by what is pinned: signatures and their parts
  std::unordered_set<PyObject*> thawed_;  // of these: dicts of classes, which a step may have changed since
  KeptObjects kept_;                      // objects whose identity is in use
  std::vector<uint64_t> sourceHashes_;    // by SourceId: of the path
  std::vector<PyObject*> sourceObjects_;  // by SourceId
  std::vector<Shadow> sourceShadows_;     // by SourceId; kNull: not described yet
  FlatMap<uint64_t, ir::SourceId> sourceNodes_;  // path hash and block -> id
  FlatMap<uint64_t, bool> guardKeys_;            // those that are written
  std::unordered_map<PyObject*, Overlay> overlays_;
  OpenAttributes opened_;   // by this recording: see class_attributes.h
  OpenAttributes written_;  // attributes of classes
  std::unordered_map<PyObject*, std::vector<PyTypeObject*>>
      closedNames_;  // looked up in classes, and left to the guards on their versions
  std::unordered_set<PyTypeObject*> closedClasses_;  // whose whole dicts were read, and left to these guards
  std::unordered_set<PyObject*> renamed_;            // functions and classes whose names the trace sets
  ClassVersions classVersions_;
  std::unordered_set<ir::SourceId> openSlices_;  // lists that steps have cut out of lists of open length
  bool readingOpen_ = false;                     // an open attribute of a class: a number in it will vary
  std::unordered_set<ir::ValueId> pinnedScalars_;
  std::unordered_map<ir::ValueId, PyObject*>
      restoredTensors_;                                   // tensors that a side trace begins with; borrowed
  std::unordered_set<ir::SourceId> sameTensors_;          // guarded to be tensors that the trace has made
  std::vector<std::pair<ir::SourceId, Shadow>> aliases_;  // see aliases.h
  SizeValues sizeValues_;                                 // of tensors that nothing has resized since
  std::unordered_set<ir::ValueId>
      remade_;  // tensors whose sizes a step may have changed since they were made
  std::unordered_map<ir::ValueId, pyapi::Ref<>> symbolicNumbers_;  // in the torch call under way
  std::vector<diag::Diagnostic> breaks_;
  std::optional<diag::Diagnostic> aborted_;
  PyObject* abortedIn_ = nullptr;
  PendingFrame pending_;
  std::deque<PendingFrame> afterPending_;
  std::vector<Shadow> results_;
  ShadowFrame* pendingOwner_ = nullptr;  // the frame of pending_, while afterPending_ waits for its return
  Shadow returned_;
  Shadow newInstance_;                 // of the constructor call that was entered last
  std::vector<Collector> collectors_;  // generators that are being consumed whole, innermost last
  ShadowFrame* current_ = nullptr;
  const Instr* instr_ = nullptr;  // being recorded in current_
  const StackBefore* stackBefore_ =
      nullptr;              // what it had then, where it is half done (record/second_half.h)
  size_t depthBefore_ = 0;  // of the shadow stack when it began
  std::vector<std::unique_ptr<ShadowFrame>> frames_;
  ir::StateId cachedState_ = ir::kNone;
  uint64_t epoch_ = 1;
  std::unique_ptr<ShadowFrame> newGenerator_;
  bool letGo_ = false;             // the recording has ended, and its objects are freed
  std::vector<uint32_t> watched_;  // generators that wait where closing them runs code (generators.cc)
  int closing_ = 0;                // generators being closed
  Transforms transforms_;          // that are active
  Finalized finalized_;            // among kept_
  std::vector<Mortal> mortals_;    // see mortals.h; in the order in which they came to be
  bool newestFirst_ = false;       // an exception has emptied a stack
  std::unordered_set<ir::RecipeId> runningRecipes_;  // hold a generator that runs: for snapshots only
  std::vector<torchapi::GlobalState> globalStates_;  // after the first
  std::vector<torchapi::StateBehind> statesBehind_;  // calls, in order
  std::deque<RestoredFrame> restored_;               // side traces: the snapshot's frames, innermost first
  std::optional<size_t> resuming_;                   // the one that is entered next
  guard::BlockId rootBlock_ = 0;                     // side traces: the first block of their own
  guard::BlockId block_ = 0;                         // newest guard block
  guard::BlockId staleBlock_ = 0;                    // entry sources read now are resolved in this block
  int paused_ = 0;
  int torchDepth_ = 0;         // inside a torch call whose operations are logged
  bool torchTainted_ = false;  // it called back into Python code that is not torch's own
  bool constNumbers_ = false;  // numbers in the result of the torch call follow from pinned arguments
  bool blockPending_ = false;  // a guard block is to be written before the next instruction
  bool frameRaised_ = false;   // the frame that was expected last was left by an exception
  bool gaveItem_ = false;      // the frame that was left last yielded, or is a function's and returned
  bool live_ = true;
  bool calledBack_ = false;                  // Python code ran while recording was paused
  bool refusing_ = false;                    // refused_ is to be raised before anything else runs
  std::optional<diag::Diagnostic> refused_;  // the first break where breaks are errors
  bool executed_ = false;                    // the instruction under way has been
  Flow executedFlow_ = Flow::kNext;          // ... and was left so
  bool mutatedInStep_ = false;
  bool unsafeException_ = false;  // the pending exception depends on data that no guard covers
  bool finished_ = false;
  size_t argCount_ = 0;
  size_t partCount_ = 0;      // of all recipes
  int recursionAtStart_ = 0;  // levels that were left before the first frame; 0: there was none yet
  int recursion_ = 0;         // that the recorded frames took at most
  const char* bound_ = "";    // what the trace knows that holds in this process alone
  pyapi::Ref<> kwNames_;
  ir::GradientLimits gradients_;  // in what groups they are wanted (gradient_buckets.h)
};

}  // namespace kintsugi::capture
