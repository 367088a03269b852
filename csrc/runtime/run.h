// Inside runtime only: one run of a trace, step by step.
//
//   Run run(code, owner, args, slots, storage, false);
//   switch (run.run()) { ... }        kReturn: run.result; else leave at the snapshot run.exitState
//
// replay.cc executes single steps, run_segments.cc segments and their graphs; run_revalidate.cc handles
// changes that other threads make during the run.
//
// Ownership: borrows the program, the storage and the call's arguments. Threads: one run, one thread; the GIL
// is held where a step needs it. Invalidation: none, as it lives for one call.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "ir/segments.h"
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

// Releases and takes the GIL. The GIL is held again when this object dies.
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

inline bool isGuard(ir::Op op) { return ir::isGuardOfValue(op) || op == ir::Op::kGuardBlock; }

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

  RunView view() const {
    return {*recording_, values_,           storage_.objects.data(),
            slots_,      &storage_.numbers, code_->numberArguments.data()};
  }
  // If the exit is at a guard block: the guard that failed, with what it expected and saw.
  std::optional<GuardFailure> explainExit();
  // The trace in which the run ended: the entry's, or a side trace (held by the run).
  CompiledTrace& owner() const { return *owner_; }
  // Can the call be run again from its start, because nothing that the program can see has changed? Asked
  // when a run has failed. Goes by the instructions that were run, in side traces too; each write to memory
  // counts.
  bool isRepeatable() const;
  // If run() ended in an operator's exception: may the interpreter run that instruction of the program again,
  // so that it raises as in eager mode? There, torch's Python bindings may raise first, with another message.
  bool canRaiseAgain() const;
  // True if it ran from the entry to the return in one trace, and every step dropped the values that died
  // there.
  bool isPlain() const { return side_ == nullptr && !exitSoon_; }
  // The guard instruction at which the run left; kNone: it left elsewhere, since a value was not of the
  // recorded kind.
  uint32_t exitGuard = ir::kNone;
  // The run left in front of a write that ends an object, so that code of the program runs.
  bool endsObject = false;

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
  Outcome executeOffGraph(const GraphRun& graph, size_t at);
  bool leavesStale(const SegmentCode& segment, size_t& at);
  Outcome goOnInside(const GraphRun& graph, bool gradMode, bool leave, size_t& position);
  bool completeGraph(const GraphRun& graph, size_t at, bool gradMode);
  bool drawAgain(const Step& step, const ir::Instruction& ins);
  bool deliverWarnings(const Step& step);
  void unpackTensor(ir::ValueId value);
  void unpackInputs(const SegmentCode& segment);
  bool isUnseen(const SegmentCode& segment, size_t at) const;
  Outcome leaveSegment(const GraphRun& graph, size_t at, bool gradMode, Outcome outcome);
  bool enterBlock(guard::BlockId block);
  void storeResult(ir::ValueId value, pyapi::Ref<> object);
  void dropBefore(const SegmentCode& segment, size_t next);
  void drop(const Step& step, uint32_t from, uint32_t to);
  void enteredBlock(guard::BlockId block, size_t index);
  void noteAct(const ir::Instruction& ins) {
    actedUntil_ = static_cast<size_t>(&ins - trace_->code.data()) + 1;
  }
  void noteWrite(const ir::Instruction& ins, PyObject* target, PyObject* key, PyObject* value);
  bool otherThreadsRan() const { return pyapi::gilSwitches(tstate_) != switches_; }
  void revalidate(const Step& step);
  void leaveIfChanged();
  bool readsHold(bool identities);
  bool writesHold() const;
  bool repeatsNothing(const Step& step, size_t end) const;
  // Called before each step: does the run have to leave the trace there?
  bool leavesAt(const Step& step) {
    if (otherThreadsRan()) [[unlikely]] {
      revalidate(step);
    }
    if (pyapi::evalBreakerSet(tstate_)) [[unlikely]] {
      leaveSoon_ = leaveSoon_ || pyapi::mustServe(tstate_);
    }
    return leaveSoon_ && step.snap != ir::kNone && repeatsNothing(step, step.index);
  }

  bool enterSideTrace(const Step& step);
  void switchTo(std::shared_ptr<CompiledTrace> side);
  bool guardHolds(const ReplayCode& code, const Step& step, size_t position);

  // The program that runs. Pointers, because the run may go on in a side trace.
  const ReplayCode* code_;
  const recording::Recording* recording_;
  const ir::Trace* trace_;
  CompiledTrace* owner_;
  std::shared_ptr<CompiledTrace> side_;  // keeps owner_ alive if it is a side trace
  const pyapi::Arguments& args_;
  PyObject** slots_;
  RunStorage& storage_;
  torchapi::Value* values_;
  GilSwitch gil_;
  PyThreadState* const tstate_;
  uint64_t switches_;           // the count of GIL switches when the run last knew that all it has read holds
  uint64_t revalidatedAt_ = 0;  // the time of that check
  // The trace whose guards the current block has. It may differ from owner_ after a side trace was entered.
  CompiledTrace* blockOwner_;
  std::shared_ptr<CompiledTrace> heldOwner_;
  guard::BlockId block_ = 0;
  SegmentRunner* measured_ = nullptr;  // the runner that compares itself with the replay of its segment
  uint64_t measuredSince_ = 0;
  const Step* raised_ = nullptr;  // the operator that raised, if it did not warn before
  size_t reached_ = 0;            // the position in code_->steps where run() ended
  bool exitSoon_ = false;         // a value is not of the recorded kind: leave at the next snapshot
  // Leave at the next step whose frames can be rebuilt and behind which nothing is done twice. Set if a trace
  // function was set, a signal waits, or another thread has changed something that the trace has read.
  bool leaveSoon_ = false;
  // A step that is said to run no Python has run some, which has changed what the trace had read. What a
  // segment's graph has computed for the instructions behind it does not count.
  bool stale_ = false;
  // Instructions of the current block up to the last one that has changed something.
  size_t blockBegin_ = 0;
  size_t actedUntil_ = 0;
  bool bypassRunners_ = false;  // runners must not run: see CompiledTrace::entryGuardsHold()
};

}  // namespace kintsugi::runtime
