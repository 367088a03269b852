#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "diag/events.h"
#include "ir/segment_stops.h"
#include "runtime/run.h"
#include "runtime/segment_steps.h"
#include "support/check.h"
#include "torchapi/op_effects.h"

namespace kintsugi::runtime {

using ir::Op;
using pyapi::Ref;
using torchapi::Value;
using torchapi::ValueKind;

// A run of one segment's graph by its runner, with the progress of the steps between the segment's marks.
class GraphRun final : public SegmentSteps {
 public:
  GraphRun(Run& run, const SegmentCode& segment) : run_(run), segment_(segment) { saveGenerator(); }
  ~GraphRun() override {
    Py_XDECREF(type_);
    Py_XDECREF(value_);
    Py_XDECREF(traceback_);
  }

  bool stop(size_t number, std::span<Value> given, std::span<Value> made) override {
    if (number != stops_ || exitOutcome_ != Outcome::kNext ||
        given.size() != segment_.stops[number].given.size() ||
        made.size() != segment_.stops[number].made.size()) {
      PyErr_SetString(PyExc_RuntimeError, "kintsugi: a backend does not make the steps of a graph in order");
      return false;
    }
    const SegmentCode::Stop& stop = segment_.stops[stops_++];
    for (size_t k = 0; k < stop.given.size(); ++k) {
      torchapi::clear(run_.values_[stop.given[k]]);
      run_.values_[stop.given[k]] = std::exchange(given[k], {});
    }
    bool stopped = false;
    while (next_ < stop.offGraph) {
      run_.dropBefore(segment_, next_);
      at_ = segment_.offGraph[next_++];
      if (ir::isStop(run_.trace_->code[run_.code_->steps[at_].index])) {
        stoppedAt_ = at_;
        stopped = true;
      }
      exitOutcome_ = run_.executeOffGraph(*this, at_);
      if (run_.leavesStale(segment_, at_)) exitOutcome_ = Outcome::kExit;
      if (exitOutcome_ != Outcome::kNext) {
        if (stopped) saveGenerator();
        leave();
        return false;
      }
    }
    run_.gil_.hold();
    for (size_t k = 0; k < stop.made.size(); ++k) {
      run_.unpackTensor(stop.made[k]);
      made[k] = run_.values_[stop.made[k]];
      if (made[k].kind == ValueKind::kTensor) torchapi::retainTensor(made[k].tensor);
    }
    saveGenerator();
    return true;
  }

  const SegmentCode& segment() const { return segment_; }
  // The last step of the program that was begun. What the graph has made before it was handed over.
  size_t stoppedAt() const { return stoppedAt_; }
  bool begun() const { return stops_ > 0; }
  bool complete() const { return stops_ == segment_.stops.size(); }
  size_t next() const { return next_; }  // of the steps that are not of the graph
  size_t at() const { return at_; }      // the last one that was run
  Outcome exitOutcome() const { return exitOutcome_; }
  // May the run leave at a step that has not failed? Not where the graph has done already what the program
  // would write behind it.
  bool mayLeave(size_t at) const {
    return segment_.lastWrite == 0 || (at > segment_.lastWrite ? segment_.keeps : segment_.rollsBack);
  }
  // Has the graph, when it is left at this step, written what the program would write behind it?
  bool wroteTooMuch(size_t at) const { return segment_.rollsBack && at < segment_.lastWrite; }
  // Restores what it has written to. False: that is not possible.
  bool rollBack(const Value* values) const {
    std::vector<Value> inputs;
    for (const ir::ValueId value : segment_.inputs) inputs.push_back(values[value]);
    return before_->restore(inputs);
  }
  std::optional<RerunState>& before() { return before_; }
  // Puts the generator back to where it was when the graph began, or went on after its last stop.
  void rewindGenerator() const {
    if (generator_) generator_->restore();
  }
  // Restores the exception with which the graph was left, in place of the backend's own.
  void restoreError() {
    PyErr_Clear();
    PyErr_Restore(std::exchange(type_, nullptr), std::exchange(value_, nullptr),
                  std::exchange(traceback_, nullptr));
  }

 private:
  void saveGenerator() {
    if (!segment_.draws.empty()) generator_.emplace();
  }
  void leave() {
    run_.gil_.hold();
    PyErr_Fetch(&type_, &value_, &traceback_);
    PyErr_SetString(PyExc_RuntimeError, "kintsugi: the graph is left at a step of the program");
  }

  Run& run_;
  const SegmentCode& segment_;
  size_t stops_ = 0;
  size_t next_ = 0;
  size_t at_ = 0;
  size_t stoppedAt_ = 0;
  Outcome exitOutcome_ = Outcome::kNext;
  std::optional<torchapi::GeneratorState> generator_;  // if the graph draws, and may be left
  std::optional<RerunState> before_;
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

// A graph's input for instructions: it may have come as a Python object. GIL held.
void Run::unpackTensor(ir::ValueId value) {
  if (values_[value].kind == ValueKind::kObject && trace_->values[value].kind == ir::TypeKind::kTensor) {
    Ref<> object = pyapi::steal(values_[value].object);
    values_[value].kind = ValueKind::kEmpty;
    KINTSUGI_CHECK(torchapi::unbox(object.get(), ValueKind::kTensor, values_[value]),
                   "an input is no tensor");
  }
}

void Run::unpackInputs(const SegmentCode& segment) {
  for (const ir::ValueId value : segment.inputs) {
    unpackTensor(value);
  }
}

// Runs the graph as a whole, then the steps that are not part of it; `position` moves to the segment's end.
// Without a runner, or when the graph was rolled back, its instructions run one by one.
Outcome Run::executeSegment(size_t& position) {
  const SegmentCode& segment = code_->segments[code_->steps[position].segment];
  if (segment.runner == nullptr || bypassRunners_) {
    return Outcome::kNext;
  }
  segment.runner->needsGil() ? gil_.hold() : gil_.release();
  const bool gradMode = torchapi::gradMode();
  GraphRun graph(*this, segment);
  const SegmentOutcome came =
      runSegment(segment, values_, segment.stops.empty() ? nullptr : &graph, graph.before());
  if (graph.begun()) {
    gil_.hold();
  }
  if (graph.exitOutcome() != Outcome::kNext) {
    position = graph.at();
    graph.restoreError();
    return leaveSegment(graph, graph.at(), gradMode, graph.exitOutcome());
  }
  if (graph.begun() && (came == SegmentOutcome::kOneByOne || came == SegmentOutcome::kRaised)) {
    return goOnInside(graph, gradMode, came == SegmentOutcome::kRaised, position = graph.at());
  }
  switch (came) {
    case SegmentOutcome::kDone:
      if (storage_.calls.hasWarnings() && !deliverWarnings(code_->steps[position])) {
        return Outcome::kRaise;
      }
      break;
    case SegmentOutcome::kOneByOne:
      unpackInputs(segment);
      return Outcome::kNext;
    case SegmentOutcome::kMeasured:
      measured_ = segment.runner.get();
      measuredSince_ = diag::events::nowNs();
      return Outcome::kNext;
    case SegmentOutcome::kRaised:
      return Outcome::kRaise;
    case SegmentOutcome::kFailed:
      return Outcome::kReturn;  // without a result
  }
  if (!graph.complete()) {
    PyErr_SetString(PyExc_RuntimeError, "kintsugi: a backend has left out a step of the program");
    return Outcome::kReturn;
  }
  for (size_t k = graph.next(); k < segment.offGraph.size(); ++k) {
    dropBefore(segment, k);
    const size_t at = segment.offGraph[k];
    const Step& step = code_->steps[at];
    const Outcome outcome = executeOffGraph(graph, at);
    position = at;
    if (leavesStale(segment, position)) return leaveSegment(graph, position, gradMode, Outcome::kExit);
    if (outcome != Outcome::kNext) {
      if (outcome == Outcome::kExit && isGuard(step.op)) {
        segment.runner->noteSideExit();
      }
      return leaveSegment(graph, at, gradMode, outcome);
    }
  }
  if (!exitSoon_) {
    if (segment.dropsObjects) {
      gil_.hold();
    }
    for (const ir::ValueId value : segment.drops) {
      segment.dropsObjects ? storage_.drop(value) : torchapi::clear(values_[value]);
    }
  }
  position = segment.endStep;
  return Outcome::kNext;
}

// Objects that die before a step that is not of the graph.
void Run::dropBefore(const SegmentCode& segment, size_t next) {
  if (exitSoon_ || segment.dropsBefore[next].empty()) return;
  gil_.hold();
  for (const ir::ValueId value : segment.dropsBefore[next]) storage_.drop(value);
}

// When the graph is left at this step: has the program not seen any tensor of it yet?
bool Run::isUnseen(const SegmentCode& segment, size_t at) const {
  for (size_t k = 0; k < segment.offGraph.size() && segment.offGraph[k] <= at; ++k) {
    if (segment.shows[k]) return false;
  }
  return true;
}

// Leaves the segment at a step inside it, after the graph has been computed. The frames may need values that
// are no outputs of the graph: these are computed by its instructions, which have succeeded before and write
// to nothing but tensors of the graph, which no frame holds: they are made anew, so that nothing is written
// twice. If autograd may differentiate them, all of the graph is computed again, so that everything that the
// frames hold belongs to one autograd graph. Where the graph has written to older tensors, all that the
// frames hold is there (SegmentCode::keeps); in front of the last such write the graph is rolled back, and
// computed again up to there.
Outcome Run::leaveSegment(const GraphRun& graph, size_t at, bool gradMode, Outcome outcome) {
  const SegmentCode& segment = graph.segment();
  gil_.hold();
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const bool rolledBack = graph.wroteTooMuch(at), keeps = segment.keeps && !rolledBack;
  const bool restored = !rolledBack || graph.rollBack(values_);
  if (!restored) PyErr_SetString(PyExc_RuntimeError, "kintsugi: a graph can't be rolled back");
  if (rolledBack ||
      (!keeps && (gradMode || segment.changesGradMode) && graph.stoppedAt() == 0 && isUnseen(segment, at))) {
    for (const size_t inner : segment.graph) {
      const ir::Instruction& ins = trace_->code[code_->steps[inner].index];
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        storage_.drop(ins.firstResult + r);
      }
    }
  }
  for (const SegmentCode::Rewritten& one : segment.rewritten) {
    if (!keeps && one.step > graph.stoppedAt()) storage_.drop(one.value);
  }
  if (!restored || !completeGraph(graph, at, gradMode)) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return Outcome::kReturn;
  }
  PyErr_Restore(type, value, traceback);
  return outcome;
}

// Moves the generator on as the step does, and keeps the results that are there, and the tensor that the step
// writes the numbers to.
bool Run::drawAgain(const Step& step, const ir::Instruction& ins) {
  const auto operands = trace_->operandsOf(ins);
  std::optional<torchapi::TensorBackup> target;
  if (torchapi::opEffects(trace_->opNames[ins.opName]).writes && !operands.empty() && operands[0].isValue() &&
      values_[operands[0].id].kind == ValueKind::kTensor) {
    target.emplace(values_[operands[0].id].tensor, true);
  }
  std::vector<Value> kept;
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    kept.push_back(std::exchange(values_[ins.firstResult + r], {}));
  }
  const bool done = executeAten(step) == Outcome::kNext;
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    torchapi::clear(values_[ins.firstResult + r]);
    values_[ins.firstResult + r] = kept[r];
  }
  return done && (!target || target->restore());
}

// Computes the missing results of the graph's instructions before step `at`. Random numbers are drawn again
// whether or not their results are missing, so that the generator is where the program expects it. False: an
// exception is pending.
bool Run::completeGraph(const GraphRun& graph, size_t at, bool gradMode) {
  const SegmentCode& segment = graph.segment();
  torchapi::setGradMode(gradMode);
  unpackInputs(segment);
  graph.rewindGenerator();
  const bool keeps = segment.keeps && !graph.wroteTooMuch(at);
  bool complete = true;
  for (const size_t inner : segment.graph) {
    const Step& step = code_->steps[inner];
    const ir::Instruction& ins = trace_->code[step.index];
    if (inner < graph.stoppedAt() && step.op != Op::kSetGrad) {
      continue;
    }
    bool missing = ins.resultCount == 0;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      missing = missing || values_[ins.firstResult + r].kind == ValueKind::kEmpty;
    }
    if (inner > at || !complete) {
      break;
    }
    const bool draws = std::ranges::binary_search(segment.draws, inner);
    if (keeps && step.op != Op::kSetGrad && !draws) {
      continue;
    }
    if (missing && !keeps) {
      complete = (step.op == Op::kAten ? executeAten(step) : execute(step, ins, inner)) == Outcome::kNext;
    } else if (draws) {
      complete = drawAgain(step, ins);
    } else if (step.op == Op::kSetGrad) {
      complete = execute(step, ins, inner) == Outcome::kNext;
    }
  }
  if (!complete && PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "kintsugi: a graph that has run can't be run again");
  }
  return complete;
}

// The graph has raised after the step of the program at `position`, which must not run twice: the
// instructions after it are run one by one. Or the segment is left there, with an exception of the backend's
// own.
Outcome Run::goOnInside(const GraphRun& graph, bool gradMode, bool leave, size_t& position) {
  if (!leave) {
    return completeGraph(graph, position, gradMode) ? Outcome::kNext : Outcome::kReturn;
  }
  while (position < graph.segment().endStep && code_->steps[++position].snap == ir::kNone) {
  }
  return leaveSegment(graph, position, gradMode, Outcome::kRaise);
}

// The step of the program at `at` has made what the graph computes behind it stale: `at` becomes the next
// step at which the run can leave. Numbers that are computed in front of that one are computed first. False
// where all is well, or where nothing can be left before the segment ends.
bool Run::leavesStale(const SegmentCode& segment, size_t& at) {
  if (!std::exchange(stale_, false)) [[likely]]
    return false;
  for (size_t next = at + 1; next < segment.endStep; ++next) {
    const Step& step = code_->steps[next];
    const bool isOffGraph = std::ranges::binary_search(segment.offGraph, next);
    if (step.snap != ir::kNone && (isOffGraph || !segment.keeps)) {
      if (!repeatsNothing(step, step.index)) return false;
      at = next;
      exitSoon_ = true;
      return true;
    }
    if (isOffGraph && execute(step, trace_->code[step.index], next) != Outcome::kNext) return false;
  }
  return false;
}

Outcome Run::executeOffGraph(const GraphRun& graph, size_t at) {
  const Step& step = code_->steps[at];
  if (step.gil != GilNeed::kAny) {
    step.gil == GilNeed::kHeld ? gil_.hold() : gil_.release();
  }
  if (graph.mayLeave(at)) [[likely]] {
    if (leavesAt(step)) [[unlikely]] {
      exitSoon_ = true;
    }
    if (exitSoon_ && step.snap != ir::kNone) {
      return Outcome::kExit;
    }
  }
  return step.op == Op::kAten ? executeAten(step) : execute(step, trace_->code[step.index], at);
}

}  // namespace kintsugi::runtime
