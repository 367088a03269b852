// What the trace depends on: the sources that it has read, and guards on them.
//
// A handler that uses an object that is older than the trace *reads* it (readSource) and *pins* what it has
// used: the type, the length, the identity, the value, or all of it (pin, pinDeep). A number that is known
// only at run time is pinned by a guard instruction. A result of false or nothing means that the recording
// has ended.
//
// Ownership: borrows the tables that it writes. Owned by the Recorder; the recording thread, GIL held.
// Example:
//
//   if (!rec.guards.pin(shadow, object)) return rec.execute(act, instr);
//   // the trace is for this very object now, and `shadow` is a constant
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/aliases.h"
#include "capture/call_context.h"
#include "capture/capture_result.h"
#include "capture/context_roles.h"
#include "capture/finalized_objects.h"
#include "capture/finalizer_tracker.h"
#include "capture/frame_roles.h"
#include "capture/kept_objects.h"
#include "capture/roles.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/frozen_objects.h"
#include "capture/tables/guard_writer.h"
#include "capture/tables/known_sources.h"
#include "capture/tables/overlays.h"
#include "capture/tables/torch_calls.h"
#include "capture/tables/trace_facts.h"
#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

class Guards final : public SourceGuards,
                     public ValuePins,
                     public ContainerPins,
                     public FunctionPins,
                     public StepArguments,
                     public RunTimePins {
 public:
  // The recorder makes these parts after this one.
  struct Roles {
    BreakSink& breaks;
    SequenceReads& sequences;
    ContainerReads& reads;
    SnapshotMaker& snapshots;
    TraceWriter& writer;
    StaleReads& stale;
    FrameCalls& frames;
    VaryingValues& varying;
    OpenSizes& sizes;
    TraceClasses& classes;
  };
  Guards(const Roles& roles, AliasList& aliases, GuardBlocks& blocks, ConstantPool& constants,
         guard::Document& document, TraceFacts& facts, FinalizedObjects& finalized,
         FinalizerTracker& finalizers, FrozenObjects& frozen, CurrentInstruction& instruction,
         KeptObjects& kept, torchapi::OpRecorder& ops, Overlays& overlays, SourceSet& sameTensors,
         KnownSources& sources, TorchCalls& torchCalls, VirtualTable& virtuals, GuardWriter& writer)
      : roles_(roles),
        aliases_(aliases),
        blocks_(blocks),
        constants_(constants),
        document_(document),
        facts_(facts),
        finalized_(finalized),
        finalizers_(finalizers),
        frozen_(frozen),
        instruction_(instruction),
        kept_(kept),
        ops_(ops),
        overlays_(overlays),
        sameTensors_(sameTensors),
        sources_(sources),
        torchCalls_(torchCalls),
        virtuals_(virtuals),
        writer_(writer) {}

  // Sources: each path that is read has one. See tables/known_sources.h.
  const guard::Document& document() const { return document_; }
  ir::ConstId constId(PyObject* object) override;
  Shadow readSource(guard::SourceKind kind, ir::SourceId parent, PyObject* key, int64_t index,
                    PyObject* object) override;
  Shadow pinnedRoot(PyObject* object) override;  // a source for an object known by identity
  // A constant becomes a pinned root.
  ir::SourceId sourceOf(Shadow& shadow, PyObject* object) override;
  Shadow adoptSource(ir::SourceId id, PyObject* object);  // takes over a source of a side trace's parent
  // A tensor becomes a value: an input of the trace, with a guard on its metadata.
  Shadow tensorShadow(PyObject* tensor, Shadow shadow) override;
  // The same for a tensor that the trace can describe (foreign.h), and that it has not wrapped.
  Shadow valueOfTensor(Shadow shadow, PyObject* object) override;
  bool comesFromStep(Shadow shadow) const override;
  // Another object in each call, as an argument is.
  bool isArgument(Shadow shadow) const override;

  // Guards on single facts
  void guard(guard::GuardKind kind, ir::SourceId source, ir::ConstId key = ir::kNone, int64_t number = 0,
             ir::SourceId other = ir::kNone) override;
  void guardType(Shadow shadow, PyObject* object) override;
  void guardTypeVersion(PyTypeObject* type) override;
  // `change` may store something in a class that a program does not see. Guards on class versions that held
  // before get the new versions.
  void keepTypeVersions(const std::function<void()>& change);
  void guardLength(Shadow shadow, PyObject* object, Py_ssize_t length) override;
  bool pinIsNone(Shadow shadow, PyObject* object);
  bool pinTruth(Shadow shadow, PyObject* object);
  bool pinLength(Shadow shadow, PyObject* container) override;
  bool pinKeys(Shadow shadow, PyObject* dict) override;            // and their order
  bool pinIdentity(Shadow a, PyObject* x, Shadow b, PyObject* y);  // the answer of `x is y`
  // Is the number an object that is older than the trace, or that a step has returned?
  bool isInput(ir::ValueId value) const;
  void pinFunction(PyObject* function) override;
  void pinImport(PyObject* module, PyObject* name);

  // Makes the trace depend on this very object: on the value of a plain one, on the identity of others.
  // False: aborted.
  bool pin(Shadow& shadow, PyObject* object) override;
  // Tensors stay values; containers are pinned part by part.
  bool pinDeep(Shadow& shadow, PyObject* object) override;
  bool pinContainer(Shadow& shadow, PyObject* container) override;
  // Guards the answer to `item in container`, for an item that is pinned.
  bool pinMembership(Shadow& shadow, PyObject* container, PyObject* item);
  bool canPinDeep(Shadow shadow, PyObject* object);
  // False: it can't be pinned, but the recording goes on.
  bool tryPinDeep(Shadow& shadow, PyObject* object) override;
  bool isFrozen(PyObject* object) const override { return frozen_.contains(object); }
  void freeze(PyObject* object);  // it can't change, and follows from pinned objects (calls/signatures.cc)

  // Guard instructions, on what is known only at run time
  bool guardTruth(ir::ValueId value, bool truth) override;
  bool guardScalar(ir::ValueId value, PyObject* number) override;
  // An element of what a step has returned is compared in the guard block behind the step, which cuts no
  // segment.
  bool guardAsRead(ir::ValueId value, PyObject* number) override;
  // Each run asks a C function (one of `operator`, or `callable`); a guard pins the answer that it gives now.
  bool pinAnswer(const char* function, const std::vector<ir::Operand>& args, PyObject* answer);
  bool pinAnswerOf(PyObject* callable, const std::vector<ir::Operand>& args, PyObject* answer);
  // `snap`: where a run goes on that gets another answer.
  bool pinAnswerAt(ir::StateId snap, PyObject* callable, const std::vector<ir::Operand>& args,
                   PyObject* answer);

 private:
  void pinNan(ir::ValueId value, PyObject* nan);
  Shadow describeSource(ir::SourceId id, guard::SourceKind kind, PyObject* object);
  void guardDistinct(ir::SourceId id, PyObject* object);
  bool pinVirtual(Shadow& shadow, PyObject* object);
  bool pinSlice(Shadow shadow, PyObject* slice);
  bool pinSameTensor(ir::SourceId source, ir::ValueId known);
  bool pinGivenBack(PyObject* x, PyObject* y);
  Shadow aliasOf(ir::SourceId source, Shadow known);

  const Roles& roles_;
  AliasList& aliases_;
  GuardBlocks& blocks_;
  ConstantPool& constants_;
  guard::Document& document_;
  TraceFacts& facts_;
  FinalizedObjects& finalized_;
  FinalizerTracker& finalizers_;
  FrozenObjects& frozen_;
  CurrentInstruction& instruction_;
  KeptObjects& kept_;
  torchapi::OpRecorder& ops_;
  Overlays& overlays_;
  SourceSet& sameTensors_;
  KnownSources& sources_;
  TorchCalls& torchCalls_;
  VirtualTable& virtuals_;
  GuardWriter& writer_;
};

}  // namespace kintsugi::capture
