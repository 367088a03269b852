// The recorder: watches the interpreter run one call for real and writes the trace.
//
// Idea: for each instruction a record handler (capture/record/*.cc) looks at the shadows of the operands,
// adds the guards for what it reads, lets it be executed, and gives the result a shadow. Invariants:
//  * a shadow stack has the depth of the real stack before every instruction (checked in each build);
//  * guards and snapshots of an instruction are made before it has run; afterwards only results;
//  * what a handler does not understand is an opaque step or ends the recording; it is never ignored.
//
// The Recorder owns the tables of the recording (capture/tables/) and the parts that work on them, and says
// in which order they have their turn. Handlers see a RecordContext. Invariant of the tables: every object
// that is a key by its identity is kept alive by `kept_`, a Virtual or an Overlay, so that no address means
// two objects at one time.
//
// Ownership: made by the driver for one call. Thread: that call's; GIL held. Throws nothing outside. Example:
// Recorder recorder(options, function, args); ... the call runs ...; auto result = recorder.finish();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/context_roles.h"
#include "capture/ending_writes.h"
#include "capture/record_context.h"
#include "capture/recorder_tables.h"
#include "pyapi/arguments.h"
#include "pyapi/frame.h"
#include "support/verification.h"

namespace kintsugi::capture {

struct SideStart;

class Recorder final : public StepObserver {
 public:
  Recorder(const RecorderOptions& options, PyObject* function, const pyapi::Arguments& args);
  Recorder(const RecorderOptions& options, const SideStart& start);  // goes on after a side exit
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() override;

  bool enterFrame(Activation& act, bool throwing) override;
  Flow step(Activation& act, const Instr& instr) override;
  void caught(Activation& act, int32_t depth, bool pushedLasti) override;
  void leaveFrame(Activation& act, Flow how) override;

  bool isExpected(pyapi::Frame* frame);  // true if the hook must show the frame to the recorder
  // A generator function was just called: CPython makes the object.
  bool enterGeneratorFunction(pyapi::Frame* frame);
  // `ended` is called once where the recording has ended and the hook has no frame to hide.
  void whenEnded(void (*ended)()) { ended_ = ended; }
  void frameOpened(size_t index, pyapi::Frame* frame);  // of the snapshot, innermost 0: it waits
  void expectRestored(size_t index) { restored_.expect(index); }
  bool live() const { return breakLog_.isLive(); }
  void abort(diag::Code code, std::vector<std::string> args = {}) { breaks_.abort(code, std::move(args)); }
  std::unique_ptr<CaptureResult> finish();  // after the call

 private:
  static ShadowFrame* frameOf(Activation& act) { return static_cast<ShadowFrame*>(act.observerData); }
  void beginWithGuard(const SideStart& start);
  void restoreFrames(const SideStart& start);
  bool resumeRestored(Activation& act, bool throwing);
  Shadow caughtException(PyObject* exception);
  // Runs a part of the recording. False: a check of ours failed in it, and the recording has ended with
  // KTG0000.
  template <typename Body>
  bool guarded(Body&& body);
  Flow record(ShadowFrame& frame, Activation& act, const Instr& instr);
  void syncIterators(const Instr& instr);
  void noteMoves(const Instr& instr, bool finalizing);
  void letGo();
  Flow stepBehindEnd(Activation& act, const Instr& instr);
  void checkShadows(const ShadowFrame& frame, Activation& act, const Instr& instr);
  void recordCaught(ShadowFrame& frame, Activation& act, int32_t depth, bool pushedLasti);
  void recordLeft(Activation& act, Flow how);

  RecorderOptions options_;
  guard::Document document_;
  torchapi::OpRecorder ops_;
  BreakLog breakLog_;
  Pauses pauses_;
  GlobalStates states_;
  ExceptionLog exceptions_;
  ConstantPool constants_;
  VirtualTable virtuals_;
  DeadObjects dead_{virtuals_, pauses_};
  GuardBlocks blocks_;
  KnownSources sources_{document_.sources.nodes};
  GuardWriter writer_{document_, blocks_};
  FrozenObjects frozen_;
  KeptObjects kept_;
  Overlays overlays_;
  AttributeLog attributes_{options_.openAttributes};
  ClassVersions classVersions_{document_, constants_, attributes_};
  SourceSet openSlices_;   // lists that steps have cut out of lists of open length
  SourceSet sameTensors_;  // guarded to be tensors that the trace has made
  SourceSet openTensors_;  // tensors whose attributes the trace may have written: these hide methods
  AliasList aliases_;
  SizeReads sizeReads_;
  TorchCalls torchCalls_;
  ExpectedFrames expected_;
  FrameStack frames_;
  RestoredFrames restored_;
  CurrentInstruction instruction_;
  WatchedGenerators watched_{virtuals_};
  Transforms transforms_{frames_};  // that are active
  TraceFacts facts_;
  GeneratorHolders holders_{dead_, frames_, virtuals_, watched_};
  FinalizedObjects finalized_{{kept_, sources_, virtuals_, exceptions_, dead_, pauses_, breakLog_}};

  ContextRoles contextRoles_{context_};
  Guards guards_{guardRoles_, aliases_,     blocks_,  constants_,   document_, facts_,
                 finalized_,  finalizers_,  frozen_,  instruction_, kept_,     ops_,
                 overlays_,   sameTensors_, sources_, torchCalls_,  virtuals_, writer_};
  Objects objects_{objectRoles_, dead_, facts_, ops_, overlays_, sources_, virtuals_};
  Steps steps_{stepRoles_,  aliases_,   blocks_,     breakLog_, classVersions_, constants_,   document_,
               exceptions_, finalized_, finalizers_, frames_,   frozen_,        instruction_, ops_,
               overlays_,   pauses_,    sizeReads_,  states_,   virtuals_};
  TorchValues torchValues_{objects_, objects_, ops_, torchCalls_, virtuals_};
  TorchSteps torch_{torchRoles_, document_,  exceptions_, frames_,      instruction_, ops_,
                    ops_,        sizeReads_, torchCalls_, torchValues_, virtuals_};
  Callees callees_{calleeRoles_, expected_, finalizers_, frames_,   instruction_,
                   options_,     pauses_,   torchCalls_, virtuals_, watched_};
  Breaks breaks_{steps_, breakLog_, frames_, instruction_, options_, virtuals_};
  Snapshots snapshots_{
      {breaks_, guards_, objects_, steps_}, document_, exceptions_, facts_, frames_, instruction_, virtuals_};
  TransientStores transient_{{breaks_, guards_, objects_}, transforms_};
  EndingWrites ending_{breaks_,
                       {options_.endingPlaces, document_.trace, constants_, sources_, kept_, overlays_,
                        blocks_, classVersions_, pauses_}};
  Heap heap_{{breaks_, guards_, objects_, steps_, snapshots_, transient_, ending_},
             document_.trace,
             overlays_,
             virtuals_};
  Stores stores_{{breaks_, guards_, guards_, objects_, objects_, heap_, contextRoles_}, frames_, virtuals_};
  Lifetimes lifetimes_{{breaks_, guards_, snapshots_, steps_, callees_},
                       blocks_,
                       classVersions_,
                       constants_,
                       document_,
                       finalized_,
                       finalizers_,
                       holders_,
                       instruction_,
                       kept_,
                       sources_,
                       virtuals_,
                       watched_};
  // What these parts ask of one another, in a circle.
  const Guards::Roles guardRoles_{breaks_, objects_, objects_,      snapshots_,    steps_,
                                  steps_,  callees_, contextRoles_, contextRoles_, contextRoles_};
  const Objects::Roles objectRoles_{breaks_,  guards_,       guards_,      guards_,
                                    callees_, contextRoles_, contextRoles_};
  const Steps::Roles stepRoles_{breaks_,    breaks_,    guards_,       guards_,
                                snapshots_, snapshots_, contextRoles_, contextRoles_};
  const TorchSteps::Roles torchRoles_{breaks_,       guards_,       guards_,       guards_,       objects_,
                                      objects_,      snapshots_,    steps_,        steps_,        steps_,
                                      contextRoles_, contextRoles_, contextRoles_, contextRoles_, steps_};
  const Callees::Roles calleeRoles_{breaks_,  guards_,  guards_, guards_, guards_,    objects_,
                                    objects_, objects_, steps_,  steps_,  snapshots_, snapshots_};
  FinalizerTracker finalizers_{
      {breakLog_, constants_, sources_, kept_, virtuals_, overlays_, frames_, instruction_, dead_, pauses_},
      lifetimes_.host()};
  RecorderTables tables_{options_,       document_,  ops_,     aliases_,    attributes_, breakLog_,
                         classVersions_, constants_, dead_,    exceptions_, finalized_,  finalizers_,
                         frames_,        frozen_,    blocks_,  sources_,    restored_,   sameTensors_,
                         openTensors_,   sizeReads_, virtuals_};
  RecordContext context_{guards_,    objects_,   heap_,       stores_,      snapshots_, steps_,  torch_,
                         callees_,   lifetimes_, breaks_,     instruction_, expected_,  pauses_, transforms_,
                         transient_, watched_,   openSlices_, facts_,       tables_};

  bool finished_ = false;
  bool letGo_ = false;         // see letGo()
  bool hides_ = false;         // a hidden frame was entered, or waits in a generator
  void (*ended_)() = nullptr;  // see whenEnded()
  size_t argCount_ = 0;
  int recursionAtStart_ = 0;           // levels that were left before the first frame; 0: there was none yet
  bool iteratorsMoved_ = true;         // since they were looked at last
  uint64_t callbacks_ = 0;             // of the program's code, before the instruction under way
  const bool verifies_ = verifying();  // for the whole recording
  int recursion_ = 0;                  // that the recorded frames took at most
  pyapi::Ref<> kwNames_;
};

}  // namespace kintsugi::capture
