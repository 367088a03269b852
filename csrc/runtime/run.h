// Inside runtime only: one run of a trace, step by step. replay.cc has the steps, run_segments.cc what graphs
// of segments are, run_others.cc what other threads do meanwhile.
//
// Ownership: borrows the program, the storage and the call's arguments. Threads: one run, one thread; the GIL
// is held where a step needs it. Invalidation: none, as it lives for one call.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "pyapi/arguments.h"
#include "pyapi/frame.h"
#include "pyapi/gil.h"
#include "runtime/compiled_trace.h"
#include "runtime/guard_explain.h"
#include "runtime/materialize.h"
#include "runtime/replay_program.h"
#include "runtime/segment_runner.h"
#include "torchapi/aten_call.h"
#include "torchapi/value.h"

namespace kintsugi::runtime {

// Releases and takes the GIL, and gives it back whatever happens.
class GilSwitch {
 public:
  explicit GilSwitch(torchapi::CallState& calls) : calls_(calls) {}
  ~GilSwitch() { hold(); }
  GilSwitch(const GilSwitch&) = delete;

  void release() {
    if (saved_ == nullptr) {
      calls_.openWarnings();
      saved_ = PyEval_SaveThread();
    }
  }
  void hold() {
    if (saved_ != nullptr) {
      PyEval_RestoreThread(std::exchange(saved_, nullptr));
      calls_.closeWarnings();
    }
  }

 private:
  torchapi::CallState& calls_;
  PyThreadState* saved_ = nullptr;
};

inline bool isGuard(ir::Op op) {
  return op == ir::Op::kGuardTrue || op == ir::Op::kGuardFalse || op == ir::Op::kGuardValue ||
         op == ir::Op::kGuardMeta || op == ir::Op::kGuardBlock;
}

// What a step came to.
enum class Outcome : uint8_t {
  kNext,
  kExit,    // leave through the step's snapshot and run the instruction again
  kRaise,   // leave through the step's snapshot, an exception is pending
  kReturn,  // the result is there
};

class GraphRun;

class Run {
 public:
  Run(const ReplayCode& code, CompiledTrace& owner, const pyapi::Arguments& args, PyObject** slots,
      RunStorage& storage, bool bypassRunners)
      : code_(&code),
        recording_(code.recording),
        trace_(&code.recording->document.trace),
        owner_(&owner),
        args_(args),
        slots_(slots),
        storage_(storage),
        values_(storage.values.data()),
        gil_(storage.calls),
        tstate_(PyThreadState_Get()),
        switches_(pyapi::gilSwitches(tstate_)),
        blockOwner_(&owner),
        bypassRunners_(bypassRunners) {}

  // kReturn: `result` is set, or an exception without frames to show it is pending. Else `exitState` says
  // where to go on.
  Outcome run();

  RunView view() const { return {*recording_, values_, storage_.objects.data(), slots_, &storage_.numbers}; }
  // Which guard has failed, with what it expected and saw, if the exit is at a guard block.
  std::optional<GuardFailure> explainExit();
  // Where the run is when it ends: the entry's trace or a side trace (held by the run).
  CompiledTrace& owner() const { return *owner_; }
  // Has the run changed nothing that could be seen? Asked when it has failed: its steps' instructions, and
  // those of the traces that it came through, are looked at. A write to memory counts, whoever holds it.
  bool isRepeatable() const;
  // run() has ended in an operator's exception: may the interpreter run that instruction of the program
  // again, which then raises as in eager mode? Bindings check arguments too, before operators do, in other
  // words.
  bool canRaiseAgain() const;
  // It has run from the entry to the return, and every step has dropped what died there.
  bool isPlain() const { return side_ == nullptr && !exitSoon_; }
  // An exit at this guard instruction; kNone: somewhere else, because a value was of another kind than
  // recorded.
  uint32_t exitGuard = ir::kNone;

  PyObject* result = nullptr;
  ir::StateId exitState = ir::kNone;

 private:
  friend class GraphRun;
  Outcome execute(const Step& step, const ir::Instruction& ins, size_t position);
  Outcome executeAten(const Step& step);
  Outcome executeCall(const Step& step, const ir::Instruction& ins);
  Outcome executeBuild(const ir::Instruction& ins);
  Outcome executeDropReference(const Step& step, const ir::Instruction& ins);
  Outcome executeEffect(const Step& step, const ir::Instruction& ins);
  Outcome executeObserved(const Step& step, const ir::Instruction& ins, bool isCall);
  Outcome executeGuard(const Step& step, const ir::Instruction& ins, size_t position);
  Outcome executeReturn(const ir::Instruction& ins);
  Outcome executeSegment(size_t& position);
  Outcome executeOffGraph(const Step& step, size_t at);
  Outcome goOnInside(const GraphRun& graph, bool gradMode, bool leave, size_t& position);
  bool completeGraph(const GraphRun& graph, size_t at, bool gradMode);
  bool deliverWarnings(const Step& step);
  void unpackTensor(ir::ValueId value);
  void unpackInputs(const SegmentCode& segment);
  bool isUnseen(const SegmentCode& segment, size_t at) const;
  Outcome leaveSegment(const GraphRun& graph, size_t at, bool gradMode, Outcome outcome);
  bool enterBlock(guard::BlockId block);
  void storeResult(ir::ValueId value, pyapi::Ref<> object);
  void dropBefore(const SegmentCode& segment, size_t next);
  void drop(const Step& step, uint32_t from, uint32_t to);
  void enteredBlock(guard::BlockId block);
  void noteWrite(const ir::Instruction& ins, PyObject* target, PyObject* key, PyObject* value);
  bool othersHaveRun() const { return pyapi::gilSwitches(tstate_) != switches_; }
  void lookAgain(const Step& step);
  bool readsHold(bool identities);
  bool writesHold() const;
  bool repeatsNothing(const Step& step, size_t end) const;
  // To be asked in front of each step: is the trace to be left there?
  bool leavesAt(const Step& step) {
    if (othersHaveRun()) [[unlikely]] {
      lookAgain(step);
    }
    if (pyapi::evalBreakerSet(tstate_)) [[unlikely]] {
      leaveSoon_ = leaveSoon_ || pyapi::mustServe(tstate_);
    }
    return leaveSoon_ && step.snap != ir::kNone && repeatsNothing(step, step.index);
  }

  bool enterSideTrace(const Step& step);
  void switchTo(std::shared_ptr<CompiledTrace> side);
  bool guardHolds(const ReplayCode& code, const Step& step, size_t position);

  // The program that runs: pointers, because the run goes from trace to trace.
  const ReplayCode* code_;
  const recording::Recording* recording_;
  const ir::Trace* trace_;
  CompiledTrace* owner_;
  std::shared_ptr<CompiledTrace> side_;  // holds owner_, when it is not the entry's
  const pyapi::Arguments& args_;
  PyObject** slots_;
  RunStorage& storage_;
  torchapi::Value* values_;
  GilSwitch gil_;
  PyThreadState* const tstate_;
  uint64_t switches_;      // of the GIL, when what the trace has read was looked at last ...
  uint64_t lookedAt_ = 0;  // ... and the time
  // Whose guards the current block has. Held, since a run may go on in a side trace.
  CompiledTrace* blockOwner_;
  std::shared_ptr<CompiledTrace> heldOwner_;
  guard::BlockId block_ = 0;
  SegmentRunner* measured_ = nullptr;  // of the segment that is being replayed, if it wants to know the time
  uint64_t measuredSince_ = 0;
  const Step* raised_ = nullptr;  // the operator that has raised without a warning before
  size_t reached_ = 0;            // where run() has ended: a position in code_->steps
  bool exitSoon_ = false;         // a value is not of the recorded kind: leave at the next snapshot
  // Leave where the frames can be rebuilt and nothing is done twice: a trace function is there, a signal
  // waits, or another thread has changed what the trace has read.
  bool leaveSoon_ = false;
  bool acted_ = false;          // a step of the current block has changed something
  bool bypassRunners_ = false;  // runners must not run: see CompiledTrace::entryGuardsHold()
};

}  // namespace kintsugi::runtime
