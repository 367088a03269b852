#include "runtime/replay.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <utility>

#include "pyapi/frame.h"
#include "pyapi/hook.h"
#include "pyapi/items.h"
#include "pyapi/object_layout.h"
#include "pyapi/types.h"
#include "runtime/compiled_trace.h"
#include "runtime/exit_report.h"
#include "runtime/guard_explain.h"
#include "runtime/materialize.h"
#include "runtime/replay_program.h"
#include "runtime/run.h"
#include "runtime/run_events.h"
#include "runtime/side_exit.h"
#include "runtime/visible_frames.h"
#include "runtime/work_clock.h"
#include "support/check.h"
#include "support/fault.h"
#include "torchapi/ended_objects.h"
#include "torchapi/op_effects.h"
#include "torchapi/profiler_range.h"
#include "torchapi/python_object.h"
#include "torchapi/run_memory.h"

namespace kintsugi::runtime {

using ir::Op;
using pyapi::Ref;
using torchapi::AtenCall;
using torchapi::Value;
using torchapi::ValueKind;

struct ReplayProgram::Impl {
  ReplayCode code;
  std::vector<std::unique_ptr<RunStorage>> idle;

  std::unique_ptr<RunStorage> take() {
    if (idle.empty()) {
      return std::make_unique<RunStorage>(code.recording->document.trace.values.size());
    }
    std::unique_ptr<RunStorage> storage = std::move(idle.back());
    idle.pop_back();
    return storage;
  }
};

namespace {

std::atomic<uint64_t> forcedExitCount = 0;

bool sameScalar(const Value& a, const Value& b) {
  // Floats bit by bit: -0.0 is another value than 0.0, and a NaN is itself.
  return a.kind == b.kind && a.i == b.i && a.kind != ValueKind::kTensor && a.kind != ValueKind::kObject;
}

// True if the tensor has an attribute of its own that hides a method of its class.
bool hidesMethod(PyObject* tensor) {
  if (!pyapi::hasInstanceAttributes(tensor)) [[likely]] {
    return false;
  }
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(pyapi::instanceDict(tensor), &at, &name, &value) != 0) {
    PyObject* d = PyUnicode_CheckExact(name) ? pyapi::lookUpInType(Py_TYPE(tensor), name) : nullptr;
    if (d != nullptr && pyapi::isMethodLike(d)) {
      return true;
    }
  }
  return false;
}

// True if an opaque step has given a tensor of the trace such an attribute, which it may have found anywhere.
// (Tensors from outside have guards.)
bool hidesMethods(std::span<const ir::ValueId> madeTensors, std::span<const Value> values) {
  return std::ranges::any_of(madeTensors, [&](ir::ValueId value) {
    if (values[value].kind != ValueKind::kTensor) return false;
    PyObject* tensor = torchapi::pythonObjectOf(values[value].tensor);
    return tensor != nullptr && hidesMethod(tensor);
  });
}

}  // namespace

// A block has resolved its sources: holds those that are named later, and reads the inputs.
bool Run::enterBlock(guard::BlockId block) {
  const BlockPrologue& prologue = code_->prologues[block];
  for (const guard::SourceId source : prologue.held) {
    if (PyObject* object = slots_[source]) {
      Py_INCREF(object);
      storage_.held.push_back(object);
    }
  }
  bool ok = true;
  for (const InputLoad& load : prologue.inputs) {
    torchapi::clear(values_[load.value]);
    // Without its guard an input of a runner may be of any kind.
    const ValueKind kind = recording_->filtered || bypassRunners_
                               ? torchapi::kindOfType(trace_->values[load.value].kind)
                               : load.kind;
    ok = torchapi::unbox(slots_[load.source], kind, values_[load.value]) && ok;
    if (load.kept) storage_.keepNumber(load.value, slots_[load.source]);
  }
  return ok;
}

void Run::drop(const Step& step, uint32_t from, uint32_t to) {
  const ir::ValueId* dead = code_->drops.data() + step.firstDrop;
  for (uint32_t k = from; k < to; ++k) {
    if (step.gil == GilNeed::kHeld) {
      storage_.drop(dead[k]);
    } else {
      torchapi::clear(values_[dead[k]]);
    }
  }
}

namespace {

// Does nothing have to be undone before the instruction is run again?
bool canRunAgain(const ir::Trace& trace, const ir::Instruction& ins) {
  return ins.op == Op::kSetGrad ||
         torchapi::changesNothing(trace, ins);  // FailureNote restores the grad mode
}

// Writes a position down when its run ends, by an exception too.
struct PositionAtEnd {
  const size_t& position;
  size_t& reached;
  ~PositionAtEnd() { reached = position; }
};

}  // namespace

bool Run::isRepeatable() const {
  if (reached_ >= code_->steps.size()) return false;
  size_t last = reached_;
  for (const SegmentCode& segment : code_->segments) {  // a graph may have done all of its segment
    if (segment.beginStep <= reached_ && reached_ <= segment.endStep) last = segment.endStep;
  }
  return std::all_of(trace_->code.begin(), trace_->code.begin() + code_->steps[last].index + 1,
                     [&](const ir::Instruction& ins) { return canRunAgain(*trace_, ins); });
}

bool Run::canRaiseAgain() const {
  if (raised_ == nullptr || raised_ != &code_->steps[reached_] || !isRebuildable(*trace_, raised_->snap))
    return false;
  return repeatsNothing(*raised_, raised_->index + 1);
}

namespace {

// Do the two states belong to two instructions of the program, or to one in two rounds of a loop? Then the
// variables tell: no instruction of its own changes which older object a variable names.
bool areApart(const ir::Trace& trace, const ir::FrameState& one, const ir::FrameState& other) {
  if (one.code != other.code || one.pc != other.pc) return true;
  const auto namesAnother = [](const ir::Operand& x, const ir::Operand& y) {
    const bool older = x.kind == ir::OperandKind::kSource || x.kind == ir::OperandKind::kConst;
    return older && x.kind == y.kind && x.id != y.id;
  };
  const auto locals = trace.localsOf(one), others = trace.localsOf(other);
  for (size_t i = 0; i < locals.size() && i < others.size(); ++i) {
    if (namesAnother(locals[i], others[i])) return true;
  }
  return false;
}

// A store of which nobody can tell whether it was done once or twice.
bool storesTheSame(const recording::Recording& recording, const ir::Instruction& ins) {
  if (ins.op == Op::kSetAttr || ins.op == Op::kSetCell) return true;
  if (ins.op != Op::kSetItem) return false;
  const ir::Operand& key = recording.document.trace.operandsOf(ins)[1];
  return key.kind == ir::OperandKind::kConst && PySlice_Check(recording.consts[key.id].get()) == 0;
}

}  // namespace

// May the trace be left in front of the step, up to instruction `end` having been run? All that it has done
// for this instruction of the program is done twice then.
bool Run::repeatsNothing(const Step& step, size_t end) const {
  if (!isRebuildable(*trace_, step.snap)) return false;
  const ir::FrameState& frame = trace_->states[step.snap];
  for (size_t k = end; k-- > 0;) {
    const ir::Instruction& ins = trace_->code[k];
    if (ins.snap != ir::kNone) {
      const ir::FrameState& other = trace_->states[ins.snap];
      if (areApart(*trace_, frame, other)) return true;
    }
    if (!canRunAgain(*trace_, ins) && !storesTheSame(*recording_, ins)) return false;
  }
  return true;
}

Outcome Run::run() {
  size_t position = 0;
  const PositionAtEnd atEnd{position, reached_};
  KINTSUGI_CHECK(enterBlock(0), "an input is not of the kind that its guard promised");
  for (; position < code_->steps.size(); ++position) {
    const Step& step = code_->steps[position];
    if (step.gil == GilNeed::kReleased) {
      gil_.release();
    } else if (step.gil == GilNeed::kHeld) {
      gil_.hold();
    }
    Outcome outcome = Outcome::kExit;
    if (leavesAt(step)) [[unlikely]] {
      exitSoon_ = true;
    }
    if (step.earlyDropCount > 0 && !exitSoon_ && step.op != Op::kRet) [[unlikely]] {
      drop(step, 0, step.earlyDropCount);
    }
    if (!exitSoon_ || step.snap == ir::kNone) [[likely]] {
      outcome = step.op == Op::kAten      ? executeAten(step)
                : step.op == Op::kSegment ? executeSegment(position)
                                          : execute(step, trace_->code[step.index], position);
    }
    if (outcome == Outcome::kNext) [[likely]] {
      if (!exitSoon_) {
        drop(step, step.earlyDropCount, step.dropCount);
      }
      continue;
    }
    gil_.hold();
    const Step& left = code_->steps[position];  // of a segment, perhaps one inside
    if (outcome == Outcome::kExit && !exitSoon_ && isGuard(left.op)) {
      if (enterSideTrace(left)) {
        position = static_cast<size_t>(-1);  // at the beginning of the side trace
        continue;
      }
      exitGuard = left.index;
    }
    exitState = left.snap;
    return outcome;
  }
  KINTSUGI_UNREACHABLE("a trace without an end");
}

// Goes on in the side trace whose own guard holds, if there is one.
bool Run::enterSideTrace(const Step& step) {
  ExitSite* site = owner_->sides().find(step.index);
  if (site == nullptr || step.forced) {
    return false;
  }
  for (SideLink& link : site->sides) {
    const ReplayCode& code = link.trace->replay().code();
    // A guard block needs the side trace's own slots: it is tried by going there. Only one is ever linked.
    if (code.steps.front().op != Op::kGuardBlock && !guardHolds(code, code.steps.front(), 0)) {
      continue;
    }
    if (pyapi::recursionLeft(PyThreadState_Get()) < link.trace->recording().recursion) {
      return false;
    }
    owner_->sides().used(link);
    switchTo(link.trace);
    return true;
  }
  return false;
}

void Run::switchTo(std::shared_ptr<CompiledTrace> side) {
  const ReplayCode& code = side->replay().code();
  const size_t sourcesBefore = recording_->document.sources.nodes.size();
  const size_t sourceCount = side->recording().document.sources.nodes.size();
  if (slots_ != storage_.slots.data()) {
    storage_.slots.assign(slots_, slots_ + sourcesBefore);
  }
  storage_.slots.resize(sourceCount, nullptr);
  slots_ = storage_.slots.data();
  storage_.grow(code.recording->document.trace.values.size());
  values_ = storage_.values.data();
  for (size_t value = 0; value < trace_->values.size(); ++value) {
    if (!code.liveIn[value]) {
      storage_.drop(static_cast<ir::ValueId>(value));
      storage_.forgetNumber(static_cast<ir::ValueId>(value));
    } else {
      unpackTensor(static_cast<ir::ValueId>(value));
    }
  }
  for (const ir::ValueId value : code.rootsOnEntry) {
    if (storage_.objects[value] == nullptr) {
      storage_.objects[value] = torchapi::box(values_[value]);
    }
  }
  side->hits.fetch_add(1, std::memory_order_relaxed);
  code_ = &code;
  recording_ = code.recording;
  trace_ = &code.recording->document.trace;
  owner_ = side.get();
  side_ = std::move(side);
  measured_ = nullptr;  // the segment that it was in is left
}

Outcome Run::executeAten(const Step& step) {
  const AtenCall::Status status = timed([&] { return step.call->run(values_, storage_.calls); });
  if (status == AtenCall::Status::kOk && !storage_.calls.hasWarnings()) [[likely]] {
    return Outcome::kNext;
  }
  gil_.hold();
  const bool ofOperator = status == AtenCall::Status::kRaised && !storage_.calls.hasWarnings() &&
                          !storage_.calls.isErrorOfPython();
  raised_ = ofOperator ? &step : nullptr;
  // Only warnings look at the frames; showing them costs too much for every call.
  VisibleFrames frames(view(), storage_.calls.hasWarnings() ? step.snap : ir::kNone);
  if (status == AtenCall::Status::kRaised) {
    storage_.calls.deliverError();
    return Outcome::kRaise;
  }
  if (!storage_.calls.deliverWarnings()) {
    return Outcome::kRaise;
  }
  return status == AtenCall::Status::kOk ? Outcome::kNext : Outcome::kExit;
}

void Run::storeResult(ir::ValueId value, Ref<> object) {
  if (code_->isRoot[value]) {
    Py_XSETREF(storage_.objects[value], Py_NewRef(object.get()));
  }
  torchapi::clear(values_[value]);
  const ValueKind kind = torchapi::kindOfType(trace_->values[value].kind);
  if (!torchapi::unbox(object.get(), kind, values_[value])) {
    // Another kind of result than recorded. The call has been made, and the step's own snapshot would repeat
    // it: leave at the next one.
    torchapi::unbox(object.get(), ValueKind::kObject, values_[value]);
    exitSoon_ = true;
  }
}

Outcome Run::executeCall(const Step& step, const ir::Instruction& ins) {
  const auto operands = trace_->operandsOf(ins);
  Materializer make(view());
  Ref<> objects[8];
  std::vector<Ref<>> many;
  Ref<>* owned = objects;
  if (operands.size() > 8) {
    many.resize(operands.size());
    owned = many.data();
  }
  PyObject* raw[9];
  std::vector<PyObject*> manyRaw;
  PyObject** args = raw + 1;
  if (operands.size() > 8) {
    manyRaw.resize(operands.size() + 1);
    args = manyRaw.data() + 1;
  }
  for (size_t k = 0; k < operands.size(); ++k) {
    owned[k] = make.object(operands[k]);
    if (!owned[k]) {
      return Outcome::kRaise;
    }
    args[k] = owned[k].get();
  }
  const size_t positional = operands.size() - 1 - ins.kwCount;
  VisibleFrames frames(view(), ins.snap, step.op == Op::kCall ? Locals::kShown : Locals::kHidden);
  if (step.op != Op::kCallPure) noteAct(ins);
  std::optional<pyapi::PythonWatch> watch;
  if (step.op != Op::kCall) watch.emplace();  // behind an opaque step all is read again anyway
  Ref<> made = pyapi::steal(
      PyObject_Vectorcall(args[0], args + 1, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, step.names.get()));
  const bool ranPython = watch && watch->ran();
  watch.reset();
  if (!made) {
    if (!ir::isLookup(ins)) return Outcome::kRaise;
    PyErr_WriteUnraisable(args[0]);  // another thread has emptied the cache, and now its function raises
    return Outcome::kNext;
  }
  if (pyapi::isTracing(PyThreadState_Get())) [[unlikely]] {
    leaveSoon_ = true;  // the step has set a trace or profile function, which is to see what follows
  }
  if (ins.resultCount > 0) {
    storeResult(ins.firstResult, std::move(made));
  }
  if ((step.op == Op::kCall || ranPython) && hidesMethods(code_->madeTensors, storage_.values)) [[unlikely]] {
    exitSoon_ = true;  // the trace calls the methods of the class
  }
  if (ranPython) [[unlikely]]
    leaveIfChanged();
  return Outcome::kNext;
}

Outcome Run::executeBuild(const ir::Instruction& ins) {
  Materializer make(view());
  Ref<> object = make.object(trace_->operandsOf(ins)[0]);
  if (!object) {
    return Outcome::kRaise;
  }
  storeResult(ins.firstResult, std::move(object));
  return Outcome::kNext;
}

Outcome Run::executeDropReference(const Step& step, const ir::Instruction& ins) {
  VisibleFrames frames(view(), ins.snap, Locals::kShown);
  storage_.writes.clear();  // their targets may die
  storage_.dropReference(trace_->operandsOf(ins)[1].id, code_->droppedSources.at(step.index), slots_);
  storeResult(ins.firstResult, pyapi::newRef(Py_None));
  return Outcome::kNext;
}

Outcome Run::executeEffect(const Step& step, const ir::Instruction& ins) {
  const auto operands = trace_->operandsOf(ins);
  Materializer make(view());
  Ref<> target = make.object(operands[0]);
  if (!target) {
    return Outcome::kRaise;
  }
  Ref<> first, second;
  if (ins.op != Op::kSetAttr && ins.op != Op::kDelAttr && !make.get(operands[1], first)) {
    return Outcome::kRaise;
  }
  if (operands.size() > 2 && !make.get(operands[2], second)) {
    return Outcome::kRaise;
  }
  const pyapi::End end =
      torchapi::endOfReplaced(ins.op, target.get(), step.names ? step.names.get() : first.get());
  if (end == pyapi::End::kRuns && repeatsNothing(step, step.index)) {
    endsObject = true;
    return Outcome::kExit;
  }
  int status = -1;
  switch (ins.op) {
    case Op::kSetAttr:
      // The generic setter: if the class has a __setattr__ in Python, its code was recorded, and this is the
      // store that it makes. Setting an attribute of a class also invalidates its look-up caches.
      status = PyType_Check(target.get())
                   ? pyapi::setTypeAttribute(target.get(), step.names.get(), second.get())
                   : PyObject_GenericSetAttr(target.get(), step.names.get(), second.get());
      break;
    case Op::kDelAttr:
      status = PyObject_GenericSetAttr(target.get(), step.names.get(), nullptr);
      break;
    case Op::kSetItem:
      // In the same way, past a __setitem__ in Python.
      status = pyapi::storeItemInC(target.get(), first.get(), second.get());
      break;
    case Op::kDelItem:
      status = pyapi::storeItemInC(target.get(), first.get(), nullptr);
      // Another thread has deleted the key since a guard saw it. The instruction knows what follows from
      // that: a KeyError, a NameError, the default of `pop`.
      if (status < 0 && PyErr_ExceptionMatches(PyExc_KeyError) && isRebuildable(*trace_, step.snap)) {
        PyErr_Clear();
        return Outcome::kExit;
      }
      break;
    case Op::kTakeItem:
      if (!pyapi::holdsItem(target.get(), first.get(), second.get()) && isRebuildable(*trace_, step.snap)) {
        return Outcome::kExit;
      }
      status = pyapi::storeItemInC(target.get(), first.get(), nullptr);
      break;
    case Op::kAddItem:
      status = PyDict_Contains(target.get(), first.get());
      if (status == 1 && isRebuildable(*trace_, step.snap)) return Outcome::kExit;
      if (status == 0) status = pyapi::storeItemInC(target.get(), first.get(), second.get());
      break;
    default:
      status = PyCell_Set(target.get(), first.get());
      break;
  }
  if (status < 0) return Outcome::kRaise;
  noteWrite(ins, target.get(), step.names ? step.names.get() : first.get(),
            step.names || ins.op == Op::kSetItem || ins.op == Op::kAddItem ? second.get() : nullptr);
  if (end != pyapi::End::kQuiet) leaveIfChanged();
  return Outcome::kNext;
}

// Does a guard on values hold? (`code` may be another trace's that shares the values.)
bool Run::guardHolds(const ReplayCode& code, const Step& step, size_t position) {
  const ir::Trace& trace = code.recording->document.trace;
  const ir::Instruction& ins = trace.code[step.index];
  switch (ins.op) {
    case Op::kGuardTrue:
    case Op::kGuardFalse: {
      const ir::Operand& operand = trace.operandsOf(ins)[0];
      const Value* value = operand.isValue() ? &values_[operand.id] : nullptr;
      const bool truth = value != nullptr ? value->i != 0 : operand.i != 0;
      return (value == nullptr || value->kind == ValueKind::kBool) && truth == (ins.op == Op::kGuardTrue);
    }
    case Op::kGuardValue:
      return sameScalar(values_[trace.operandsOf(ins)[0].id], code.expected[position]);
    default: {
      const auto operands = trace.operandsOf(ins);
      const Value& value = values_[operands[0].id];
      return value.kind == ValueKind::kTensor &&
             torchapi::implMatches(
                 value.tensor, code.recording->document.trace.metas.at(static_cast<size_t>(operands[1].i)),
                 true);
    }
  }
}

Outcome Run::executeGuard(const Step& step, const ir::Instruction& ins, size_t position) {
  faultPoint("guard");
  bool holds = false;
  if (ins.op == Op::kGuardBlock) {
    const auto block = static_cast<guard::BlockId>(trace_->operandsOf(ins)[0].i);
    holds = owner_->guards().check(block, args_, storage_.objects.data(), slots_) && enterBlock(block);
    if (holds) enteredBlock(block, step.index);
    bypassRunners_ = bypassRunners_ || (holds && owner_->unguardedDiffer(block, slots_));
  } else {
    holds = guardHolds(*code_, step, position);
  }
  if (step.forced) [[unlikely]] {
    ++forcedExitCount;
    return Outcome::kExit;
  }
  return holds ? Outcome::kNext : Outcome::kExit;
}

std::optional<GuardFailure> Run::explainExit() {
  if (exitGuard == ir::kNone || trace_->code[exitGuard].op != Op::kGuardBlock) {
    return std::nullopt;
  }
  const auto block = static_cast<guard::BlockId>(trace_->operandsOf(trace_->code[exitGuard])[0].i);
  return owner_->guards().explainFailure(block, args_, storage_.objects.data(), slots_);
}

Outcome Run::executeReturn(const ir::Instruction& ins) {
  Materializer make(view());
  result = make.object(trace_->operandsOf(ins)[0]).release();
  return Outcome::kReturn;
}

// What C++ has warned of, at the line of a step. False: a warning has become an exception.
bool Run::deliverWarnings(const Step& step) {
  gil_.hold();
  VisibleFrames frames(view(), step.snap);
  return storage_.calls.deliverWarnings();
}

Outcome Run::executeObserved(const Step& step, const ir::Instruction& ins, bool isCall) {
  const uint64_t start = diag::events::nowNs();
  torchapi::ProfilerRange range;
  if (torchapi::profilerActive()) {
    range.begin(stepTitle(*owner_, step.index));
  }
  const Outcome outcome = step.dropsReference ? executeDropReference(step, ins)
                          : isCall            ? executeCall(step, ins)
                                              : executeEffect(step, ins);
  if (diag::events::on()) {
    emitStep(*owner_, step.index, start);
  }
  return outcome;
}

Outcome Run::execute(const Step& step, const ir::Instruction& ins, size_t position) {
  switch (step.op) {
    case Op::kCall:
    case Op::kCallKnown:
    case Op::kCallPure:
      if (isObserved()) [[unlikely]] {
        return executeObserved(step, ins, true);
      }
      return step.dropsReference ? executeDropReference(step, ins) : executeCall(step, ins);
    case Op::kBuild:
      return executeBuild(ins);
    case Op::kSetAttr:
    case Op::kDelAttr:
    case Op::kSetItem:
    case Op::kDelItem:
    case Op::kTakeItem:
    case Op::kAddItem:
    case Op::kSetCell:
      if (isObserved()) [[unlikely]] {
        return executeObserved(step, ins, false);
      }
      return executeEffect(step, ins);
    case Op::kGuardTrue:
    case Op::kGuardFalse:
    case Op::kGuardValue:
    case Op::kGuardMeta:
    case Op::kGuardBlock:
      return executeGuard(step, ins, position);
    case Op::kRet:
      return executeReturn(ins);
    case Op::kSetGrad: {
      const ir::Operand& mode = trace_->operandsOf(ins)[0];
      torchapi::setGradMode((mode.isValue() ? values_[mode.id].i : mode.i) != 0);
      return Outcome::kNext;
    }
    case Op::kSegmentEnd:
      if (measured_ != nullptr) {
        std::exchange(measured_, nullptr)->replayed(diag::events::nowNs() - measuredSince_);
      }
      return Outcome::kNext;
    case Op::kSegment:
      return Outcome::kNext;
    default:
      break;
  }
  if (runScalar(*trace_, ins, values_)) {
    return Outcome::kNext;
  }
  // A pure instruction has no snapshot of its own: leave at the next instruction that has one.
  exitSoon_ = true;
  return step.snap == ir::kNone ? Outcome::kNext : Outcome::kExit;
}

ReplayProgram::ReplayProgram(const recording::Recording& recording) : impl_(std::make_unique<Impl>()) {
  impl_->code = lowerTrace(recording);
}
ReplayProgram::~ReplayProgram() = default;
ReplayProgram::ReplayProgram(ReplayProgram&&) noexcept = default;

void ReplayProgram::forceExit(size_t index) {
  for (Step& step : impl_->code.steps) {
    if (step.index == index) {
      step.forced = true;
    }
  }
}

uint64_t ReplayProgram::forcedExits() { return forcedExitCount; }

void ReplayProgram::setRunner(size_t segment, std::shared_ptr<SegmentRunner> runner) {
  ReplayCode& code = impl_->code;
  KINTSUGI_CHECK(segment < code.segments.size() && runner != nullptr, "a runner for segment ", segment,
                 " of ", code.segments.size());
  const bool objects = runner->needsGil();
  code.segments.at(segment).runner = std::move(runner);
  if (!objects) {
    return;
  }
  const auto takesObjects = [&](uint32_t at) {
    const SegmentCode& user = code.segments[at];
    return user.runner != nullptr && user.runner->needsGil() && !user.writes && !user.writesUnseen;
  };
  for (BlockPrologue& prologue : code.prologues) {
    for (InputLoad& load : prologue.inputs) {
      if (const auto found = code.graphInputs.find(load.value); found != code.graphInputs.end()) {
        const bool all = std::all_of(found->second.begin(), found->second.end(), takesObjects);
        load.kind = all ? ValueKind::kObject : ValueKind::kTensor;
      }
    }
  }
}

const ReplayCode& ReplayProgram::code() const { return impl_->code; }

namespace {

// Begins the event of an exit, and gives the guard that it names.
std::optional<GuardFailure> beginExitEvent(Run& run, bool raising, ScopedEvent& left) {
  diag::events::Event event{.extra = run.exitGuard,
                            .trace = run.owner().number(),
                            .stack = stackOf(run.owner(), run.exitState),
                            .kind = raising ? diag::events::Kind::kRaise : diag::events::Kind::kExit};
  std::optional<GuardFailure> failure = run.explainExit();
  if (failure) {
    event.name = diag::events::intern(describeGuard(run.owner().recording(), failure->guard));
    event.text = diag::events::intern(failure->expected);
    event.more = diag::events::intern(failure->seen);
  }
  left.begin(event);
  return failure;
}

// Says whether a run that a failed check ends could be repeated, and restores the grad mode of its entry.
class FailureNote {
 public:
  FailureNote(const Run& run, bool* repeatable)
      : run_(run), repeatable_(repeatable), gradMode_(torchapi::gradMode()) {}
  ~FailureNote() {
    if (ended_) [[likely]]
      return;
    torchapi::setGradMode(gradMode_);
    if (repeatable_ != nullptr) *repeatable_ = run_.isRepeatable();
  }
  FailureNote(const FailureNote&) = delete;
  void ended() { ended_ = true; }

 private:
  const Run& run_;
  bool* repeatable_;
  const bool gradMode_;
  bool ended_ = false;
};

}  // namespace

PyObject* ReplayProgram::run(CompiledTrace& owner, const pyapi::Arguments& args, PyObject** slots,
                             ExitHandler* handler, bool bypassRunners, bool* repeatable) {
  // Returns the storage to the free list before any frame runs: frames hold what they need, and may call this
  // trace again.
  struct Lease {
    explicit Lease(Impl& impl) : impl(impl), storage(impl.take()) {}
    ~Lease() {
      returned ? storage->clearReturned(impl.code) : storage->clear();
      impl.idle.push_back(std::move(storage));
    }
    Impl& impl;
    std::unique_ptr<RunStorage> storage;
    bool returned = false;  // as planned
  };
  std::vector<FrameImage> images;
  std::optional<ExitContext> context;
  bool raising = false;
  ScopedEvent left;
  torchapi::ProfilerRange leftRange;
  {
    const torchapi::RunMemoryScope memory;
    Lease lease(*impl_);
    Run run(impl_->code, owner, args, slots, *lease.storage, bypassRunners);
    FailureNote note(run, repeatable);
    const Outcome outcome = run.run();
    if (outcome == Outcome::kReturn) {
      note.ended();
      lease.returned = run.result != nullptr && run.isPlain();
      return run.result;
    }
    raising = outcome == Outcome::kRaise;
    const ir::Trace& trace = run.owner().trace();
    if (torchapi::profilerActive()) {
      leftRange.begin("kintsugi exit " + entryTitle(run.owner()));
    }
    std::optional<GuardFailure> failure;
    if (diag::events::on()) failure = beginExitEvent(run, raising, left);
    if (!raising) {
      owner.sideExits.fetch_add(1, std::memory_order_relaxed);
      reportSideExit(run.owner(), run.exitState);
      if (run.endsObject && handler != nullptr) handler->noteEndingWrite(run.owner(), run.exitState);
      if (run.exitGuard != ir::kNone && handler != nullptr &&
          handler->shouldRecord(run.owner(), run.exitGuard)) {
        context.emplace(ExitContext{.trace = run.owner().shared_from_this(),
                                    .args = args,
                                    .guard = run.exitGuard,
                                    .state = run.exitState});
        describeExit(run.view(), trace.code[run.exitGuard], *context);
        context->failure = (failure ? std::move(failure) : run.explainExit()).value_or(GuardFailure());
      }
    }
    ir::StateId state = run.exitState;
    // Frames that can't be made again have no handlers (the recorder sees to that): the exception goes to the
    // first one outside them that can.
    while (raising && state != ir::kNone && !trace.states[state].rebuildable) {
      state = trace.states[state].parent;
    }
    if (raising && state == ir::kNone) {
      note.ended();
      return nullptr;
    }
    const bool inCaller = state != run.exitState;
    KINTSUGI_CHECK(run.exitState != ir::kNone, "a guard without a snapshot failed");
    const bool captured = captureFrames(run.view(), state, images, context ? &*context : nullptr);
    note.ended();
    if (!captured) {
      return nullptr;
    }
    if (raising && !inCaller && run.canRaiseAgain()) {
      PyErr_Clear();
      raising = false;
    }
    if (inCaller) {
      images.front().pc = trace.states[state].waitingUnit();  // the next instruction may have other handlers
    }
  }
  return context ? handler->run(std::move(*context), std::move(images))
                 : runFrames(std::move(images), raising);
}

}  // namespace kintsugi::runtime
