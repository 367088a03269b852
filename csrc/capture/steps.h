// The instructions of the trace, and calls of C code that each run makes again.
//
// A call without a model is a *step*: each run makes it again with real arguments, and its result is a
// source. An opaque step may have changed anything, so what was read before is stale after it
// (invalidateReads, forgetEscaped).
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   return rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/aliases.h"
#include "capture/call_context.h"
#include "capture/context_roles.h"
#include "capture/finalized_objects.h"
#include "capture/finalizer_tracker.h"
#include "capture/frame_roles.h"
#include "capture/roles.h"
#include "capture/tables/break_log.h"
#include "capture/tables/class_versions.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/exception_log.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/frozen_objects.h"
#include "capture/tables/global_states.h"
#include "capture/tables/guard_blocks.h"
#include "capture/tables/overlays.h"
#include "capture/tables/pauses.h"
#include "capture/tables/size_reads.h"
#include "capture/tables/virtual_table.h"
#include "torchapi/op_recorder.h"

namespace kintsugi::capture {

// A step that runs: what it is given, and how it went.
struct StepRun {
  CallKind kind = CallKind::kOpaque;
  std::vector<ir::Operand> operands;
  ir::StateId snap = ir::kNone;
  Refs alive;  // the instruction drops its arguments
  std::vector<PyObject*> args;
  std::vector<uint64_t> versions;  // of the tensors among them, before the call
  Flow flow = Flow::kNext;
};

class Steps final : public TraceWriter,
                    public StaleReads,
                    public OperatorLog,
                    public InstructionRunner,
                    public CallSteps {
 public:
  // The recorder makes some of these parts after this one.
  struct Roles {
    BreakSink& breaks;
    BreakErrors& errors;
    SourceGuards& guards;
    StepArguments& arguments;
    SnapshotMaker& snapshots;
    FrameStates& states;
    OpenSizes& sizes;
    StepSurroundings& surroundings;
  };
  Steps(const Roles& roles, AliasList& aliases, GuardBlocks& blocks, BreakLog& breakLog,
        ClassVersions& classVersions, ConstantPool& constants, guard::Document& document,
        ExceptionLog& exceptions, FinalizedObjects& finalized, FinalizerTracker& finalizers,
        FrameStack& frames, FrozenObjects& frozen, CurrentInstruction& instruction, torchapi::OpRecorder& ops,
        Overlays& overlays, Pauses& pauses, SizeReads& sizeReads, GlobalStates& states,
        VirtualTable& virtuals)
      : roles_(roles),
        aliases_(aliases),
        blocks_(blocks),
        breakLog_(breakLog),
        classVersions_(classVersions),
        constants_(constants),
        document_(document),
        exceptions_(exceptions),
        finalized_(finalized),
        finalizers_(finalizers),
        frames_(frames),
        frozen_(frozen),
        instruction_(instruction),
        ops_(ops),
        overlays_(overlays),
        pauses_(pauses),
        sizeReads_(sizeReads),
        states_(states),
        virtuals_(virtuals) {}

  ir::Trace& trace() { return document_.trace; }
  torchapi::OpRecorder& ops() { return ops_; }
  Flow execute(Activation& act, const Instr& instr) override;
  size_t emit(ir::Op op, const std::vector<ir::Operand>& operands, const std::vector<ir::Type>& results,
              ir::StateId snap) override;
  void discardOperators() override { ops_.discard(); }

  // Runs the instruction unrecorded and writes it as a call. The caller pushes the result's shadow.
  Flow callStep(CallValues& ctx, CallKind kind, const char* reason, Shadow& result) override;
  // The two halves of callStep(): runs the call with its arguments, and writes it. After false nothing is
  // left to write: the call has raised, or the recording has ended.
  bool runStep(CallValues& ctx, const char* reason, StepRun& run);
  void writeStep(CallValues& ctx, const StepRun& run, Shadow& result);
  // Instead of writeStep(): later runs find done what the call has done, if guards that are made between
  // these two hold. They are checked in front of the call, which is written as a look-up.
  void beginDoneOnce(CallValues& ctx, const StepRun& run);
  void writeDoneOnce(CallValues& ctx, const StepRun& run);
  // Runs an instruction whose result is known, and writes it as a call that may be deferred; the second one
  // as a look-up (ir::isLookup), which can't raise in later runs.
  Flow quietCall(CallValues& ctx) { return callQuietly(ctx, true); }
  Flow lookup(CallValues& ctx) { return callQuietly(ctx, false); }
  CallKind stepKind(PyObject* object);  // the kind of a step with such an argument
  // A model has the result: the instruction is not executed.
  Flow replaceCall(CallValues& ctx, pyapi::Ref<> result) override;
  Shadow appendCall(CallValues& ctx, CallKind kind, const std::vector<ir::Operand>& operands,
                    ir::StateId snap, PyObject* result) override;
  // The call has raised: writes a step that is expected to raise again. False: no exit is possible here.
  bool recordRaised(CallValues& ctx, CallKind kind, std::vector<ir::Operand> operands,
                    ir::StateId snap) override;
  // Makes the operands of a call without side effects on the recording, since the call may not be written at
  // all.
  bool quietOperands(CallValues& ctx, std::vector<ir::Operand>& operands) override;

  void flushBlock() override;  // writes the pending guard block
  void flushBlockAt(ir::StateId snap) override;
  void invalidateReads() override;  // after an opaque step: everything has to be read again
  // After an operator that has run Python code of the program.
  void readAgain() override;
  // The tensor, which is older than what was run last, has to have this metadata behind it in each run.
  void guardHeld(ir::ValueId tensor, ir::MetaId meta);
  void writeHeldGuards();  // at the end: behind the guard blocks
  void mergeBlocks();      // at the end: blocks of calls that were done once
  bool isSideTrace() const { return blocks_.root() != 0; }
  // Has an operator run what may have changed anything, so that no graph of others has ended there?
  bool isBehindOperator() const { return behindOperator_; }
  // Has the trace done something since objects were to be read again? Then objects may have ended.
  bool isBehindEffect() const { return behindEffect_; }
  // At the end, where the trace is cut into graphs of others: guard blocks behind operators that only compare
  // the global state go, since a graph would end there.
  void dropStateBlocks();
  // After an opaque step: objects that it was given are like older ones.
  void forgetEscaped(CallValues& ctx);
  void forgetEscapedObjects() override;
  void checkBlocks();  // at the end: a guard block with guards needs a rebuildable snapshot

 private:
  Flow callQuietly(CallValues& ctx, bool mayRaise);
  struct HeldTensor {
    guard::BlockId block;
    ir::ValueId tensor;
    ir::MetaId meta;
  };

  void checkHandlers(ir::StateId snap);
  guard::BlockId blockOf(const ir::Instruction& ins) const;  // of a kGuardBlock
  std::vector<guard::BlockId> eachOfItsOwn() const;
  void removeBlocks(std::vector<guard::BlockId> into);
  void invalidateSources();
  void writeRaisedStep(CallValues& ctx, StepRun& run);
  bool checkWeaklyHeld(CallValues& ctx);
  bool callOperands(CallValues& ctx, CallKind kind, std::vector<ir::Operand>& operands);
  size_t emitCall(CallValues& ctx, CallKind kind, const std::vector<ir::Operand>& operands, ir::StateId snap);

  const Roles& roles_;
  AliasList& aliases_;
  GuardBlocks& blocks_;
  BreakLog& breakLog_;
  ClassVersions& classVersions_;
  ConstantPool& constants_;
  guard::Document& document_;
  ExceptionLog& exceptions_;
  FinalizedObjects& finalized_;
  FinalizerTracker& finalizers_;
  FrameStack& frames_;
  FrozenObjects& frozen_;
  CurrentInstruction& instruction_;
  torchapi::OpRecorder& ops_;
  Overlays& overlays_;
  Pauses& pauses_;
  SizeReads& sizeReads_;
  GlobalStates& states_;
  VirtualTable& virtuals_;

  std::vector<HeldTensor> held_;
  std::vector<guard::BlockId> doneOnce_;  // ascending
  bool behindOperator_ = false;
  bool behindEffect_ = false;
};

}  // namespace kintsugi::capture
