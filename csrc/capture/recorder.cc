// Recorder: frames and instructions. Each of its parts has files of its name.
#include "capture/recorder.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "capture/breaks.h"
#include "capture/check_shadows.h"
#include "capture/class_attributes.h"
#include "capture/classes.h"
#include "capture/exceptions.h"
#include "capture/handlers/handlers.h"
#include "capture/lists.h"
#include "capture/own_handlers.h"
#include "capture/record/table.h"
#include "capture/recorder_tables.h"
#include "capture/shown.h"
#include "pyapi/abc_registry.h"
#include "pyapi/code.h"
#include "pyapi/collector.h"
#include "pyapi/containers.h"
#include "pyapi/errors.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/module_code.h"
#include "pyapi/object_layout.h"
#include "pyapi/opcodes.h"
#include "pyapi/order.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "support/contain.h"
#include "support/fault.h"
#include "support/verification.h"
#include "torchapi/function_modes.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

Recorder::Recorder(const RecorderOptions& options, PyObject* function, const pyapi::Arguments& args)
    : options_(options) {
  states_.begin(torchapi::GlobalState::current());
  exceptions_.setHandledOutside(pyapi::handledException());
  argCount_ = args.positional();
  kwNames_ = pyapi::newRef(args.kwnames());
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  document_.trace.function = pyapi::utf8(pyapi::qualifiedNameOf(code));
  document_.trace.file = pyapi::utf8(pyapi::fileOf(code));
  document_.trace.line = pyapi::firstLineOf(code);
  document_.guards.guards.push_back({guard::GuardKind::kGlobalState, 0, ir::kNone, ir::kNone, ir::kNone, 0});
  PendingFrame entry;
  entry.code = PyFunction_GET_CODE(function);
  entry.function = pyapi::newRef(function);
  entry.functionShadow = Shadow::constant();
  entry.positional = args.positional();
  entry.kwnames = args.kwnames();
  for (int64_t i = 0; i < static_cast<int64_t>(args.total()); ++i) {
    entry.args.push_back(args.at(i));
    entry.shadows.push_back(guards_.readSource(guard::SourceKind::kArg, ir::kNone, nullptr, i, args.at(i)));
  }
  callees_.expectFrame(std::move(entry));
}

// What only the recorder holds goes now, in the order in which releaseObjects() drops it: generators run code
// then.
Recorder::~Recorder() {
  if (!lifetimes_.isReleased()) lifetimes_.releaseObjects();
}

namespace {

// The `__del__` of an object that dies: nobody else holds it, unless the collector has found it in a cycle.
// One that somebody calls is a function like any other.
bool isDying(pyapi::Frame* frame) {
  PyCodeObject* code = pyapi::codeOf(frame);
  PyObject* self = pyapi::argumentCount(code) > 0 ? pyapi::localAt(frame, 0) : nullptr;
  if (self == nullptr) return false;
  PyObject* method = specialMethod(Py_TYPE(self), "__del__");
  if (method == nullptr || !PyFunction_Check(method) ||
      PyFunction_GET_CODE(method) != reinterpret_cast<PyObject*>(code)) {
    return false;
  }
  return Py_REFCNT(self) <= 2 || pyapi::isCollecting(PyThreadState_Get());  // the frame and who calls it
}

// Finalizers and weak-reference callbacks may run inside any instruction; they are nobody's callee.
bool isFinalizer(pyapi::Frame* frame) {
  return pyapi::isKnownCode(pyapi::codeOf(frame), pyapi::CodeFamily::kWeakCallback) || isDying(frame);
}

// A suspended generator is being closed (its last reference went, say), and no code of it will run.
bool isQuietClose(Activation& act) {
  return pyapi::ownedByGenerator(act.frame) && PyErr_ExceptionMatches(PyExc_GeneratorExit) != 0 &&
         !hasOwnHandlers(pyapi::codeOf(act.frame));
}

bool isTorchFrame(pyapi::Frame* frame) {
  return torchapi::isTorchCode(pyapi::codeOf(frame), pyapi::globalsOf(frame));
}

// Is the frame one of torch's own Python code, or of the standard library, which that code calls? What these
// do besides calling the dispatcher (to print a tensor, say) changes nothing that a program knows of. The
// same of modules that they import, which happens once, and of functions of ours that stand for C code. Other
// code of the program that they call (`__int__` of an argument, a kernel) may change anything. (The frame is
// about to begin: it is not linked with its caller yet.)
bool isForTorch(pyapi::Frame* frame, const ShadowFrame* recorded) {
  const PyCodeObject* code = pyapi::codeOf(frame);
  PyObject* globals = pyapi::globalsOf(frame);
  if (torchapi::isTorchCode(code, globals) || pyapi::isPolyfill(code)) return true;
  const bool harmless = pyapi::isStandardModule(globals) || pyapi::isNamedTupleMaker(code, globals);
  const pyapi::Frame* end = recorded != nullptr ? recorded->act->frame : nullptr;
  pyapi::Frame* caller = pyapi::currentFrame(PyThreadState_Get());
  bool imports = false;
  for (; caller != nullptr && caller != end; caller = pyapi::previousOf(caller)) {
    if ((harmless || imports) && isTorchFrame(caller)) return true;
    imports = imports || pyapi::isImportSystem(pyapi::globalsOf(caller));
  }
  return false;
}

}  // namespace

bool Recorder::isExpected(pyapi::Frame* frame) {
  if (!context_.live()) return false;
  const pyapi::PendingErrorScope kept;
  if (pauses_.isPaused()) {
    if (!pauses_.calledBack() && !isFinalizer(frame) && !isForTorch(frame, frames_.current()))
      pauses_.noteCallback();
    return false;
  }
  if (torchCalls_.isInside()) {
    // A higher-order operator dispatches by itself, and knows nothing of our key.
    const bool higher = pyapi::isKnownCode(pyapi::codeOf(frame), torchapi::CodeFamily::kHigherOrder);
    if (higher) ops_.pause();
    const bool abc = pyapi::asksAbc(pyapi::codeOf(frame));  // of a type that is pinned
    if (abc) pyapi::watchAbcs();
    if (!higher && ops_.inOperator()) {
      // A graph of another backend is not cut behind each operator of torch.library: its schema says what it
      // changes.
      if (!abc && !torchCalls_.hasProgramRun() &&
          (options_.pinLikely || torchapi::operatorsCallModesOrHooks()) && !isFinalizer(frame) &&
          !isForTorch(frame, frames_.current()))
        torchCalls_.noteProgramRan();
    } else if (higher || (!abc && !isTorchFrame(frame))) {
      torchCalls_.setTainted(true);
    }
    return false;
  }
  PyCodeObject* code = pyapi::codeOf(frame);
  return expected_.isExpected(code) || !isFinalizer(frame);
}

template <typename Body>
bool Recorder::guarded(Body&& body) {
  const auto failure = contain(std::forward<Body>(body));
  if (failure) context_.abort(diag::Code::KTG0000, {failure->text});
  return !failure;
}

bool Recorder::enterGeneratorFunction(pyapi::Frame* frame) {
  hides_ = hides_ || pyapi::isHidden(pyapi::codeOf(frame));
  return callees_.enterGeneratorFunction(frame);
}

bool Recorder::enterFrame(Activation& act, bool throwing) {
  act.observerData = nullptr;
  if (!isExpected(act.frame)) return false;
  hides_ = hides_ || pyapi::isHidden(pyapi::codeOf(act.frame));
  if (recursionAtStart_ == 0) recursionAtStart_ = pyapi::recursionLeft(act.tstate) + 1;
  recursion_ = std::max(recursion_, recursionAtStart_ - pyapi::recursionLeft(act.tstate));
  bool accepted = false;
  guarded([&] {
    faultPoint("enter");
    accepted = restored_.isExpected() ? resumeRestored(act, throwing)
                                      : (!throwing || callees_.throwsInto(act)) && callees_.acceptFrame(act);
  });
  if (!accepted && throwing && isQuietClose(act)) return false;
  if (!accepted)
    context_.abort(diag::Code::KTG0102, {pyapi::utf8(pyapi::qualifiedNameOf(pyapi::codeOf(act.frame)))});
  if (breakLog_.isToBeRaised()) breaks_.raiseRefused();  // before the frame runs
  return accepted && context_.live();
}

namespace {

// At the end of frames and of loop bodies. What C code was given, and dropped, may still be asked for.
void sweepDropped(RecordContext& rec) {
  if (rec.expected.isIdle()) rec.tables.dead.sweep();
}

}  // namespace

namespace {

bool hasOtherThreads(PyThreadState* own) {
  PyThreadState* first = PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(own));
  return first != own || PyThreadState_Next(first) != nullptr;
}

// A container that grows in a loop is part of the snapshot of each turn.
constexpr size_t kMostParts = 4'000'000;

void checkLength(RecordContext& rec) {
  const size_t most = rec.tables.options.maxInstructions;
  if (rec.trace().code.size() > most) {
    rec.abort(diag::Code::KTG0104, {std::to_string(most) + " instructions"});
  } else if (rec.snapshots.partCount() > kMostParts) {
    rec.abort(diag::Code::KTG0104, {std::to_string(kMostParts) + " values in snapshots"});
  }
}

// How the instruction under way is left when the recorder has failed in the middle of it: it is run, unless
// that has been done.
Flow leaveFailed(RecordContext& rec, Activation& act, const Instr& instr) {
  CurrentInstruction& instruction = rec.instruction;
  if (!instruction.isExecuted()) {
    instruction.setExecuted(true);
    return act.execute(instr);
  }
  if (PyErr_Occurred()) return Flow::kRaise;
  if (instruction.flow() != Flow::kRaise) return instruction.flow();
  PyErr_SetString(PyExc_SystemError,
                  "an internal error in Kintsugi has lost the exception of an instruction");
  return Flow::kRaise;
}

bool returns(const Instr& instr) { return instr.op == op::RETURN_VALUE || instr.op == op::RETURN_CONST; }

// True if the instruction drops the first of its two operands first, where others drop the last one first.
bool dropsLeftFirst(const Instr& instr) {
  return pyapi::dropsLastFirst() && (instr.op == op::BINARY_OP || instr.op == op::BINARY_SUBSCR);
}

}  // namespace

// The recording has ended: exceptions are no longer held either, which keep the frames that they have passed.
void Recorder::letGo() {
  if (!lifetimes_.isReleased()) lifetimes_.releaseObjects();
  if (std::exchange(letGo_, true)) return;
  const pyapi::PendingErrorScope kept;  // what ends below may run code, so all is taken out first
  const std::vector<Raised> raised = exceptions_.takeRaised();
  Refs handled;
  for (const auto& frame : frames_.all()) {
    frame->handled = Shadow::null();
    handled.push_back(std::move(frame->handledObject));
  }
}

// The recording has ended. CPython's evaluator takes the frame over, at this instruction: calls there hand
// their arguments over to the callee, and what the program drops ends in CPython's order.
Flow Recorder::stepBehindEnd(Activation& act, const Instr& instr) {
  letGo();
  // A frame of ours stays hidden only here, and an error that waits for the end of a pause is raised here.
  if (pyapi::isHidden(pyapi::codeOf(act.frame)) || breakLog_.isToBeRaised()) return act.execute(instr);
  if (ended_ != nullptr && !hides_) std::exchange(ended_, nullptr)();
  act.observed = false;
  act.pc = instr.start;
  return Flow::kNext;
}

Flow Recorder::step(Activation& act, const Instr& instr) {
  ShadowFrame* frame = frameOf(act);
  if (breakLog_.isToBeRaised() && !pauses_.isPaused()) return breaks_.raiseRefused();
  if (!context_.live()) return stepBehindEnd(act, instr);
  if (frame == nullptr || pauses_.isPaused()) return act.execute(instr);
  pyapi::postponeCollection(act.tstate);
  frames_.setCurrent(frame);
  instruction_.begin(instr, frame->stack.size());
  expected_.cancel();  // of an earlier instruction, whose frame was not entered
  Flow flow = Flow::kNext;
  if (const auto failure = contain([&] { flow = record(*frame, act, instr); })) {
    pauses_.reset();  // before anything is said of it
    context_.abort(diag::Code::KTG0000, {failure->text});
    flow = leaveFailed(context_, act, instr);
  }
  return flow;
}

namespace {

using InstructionSet = std::array<bool, op::kCount>;

constexpr InstructionSet setOf(std::initializer_list<op::Instruction> members) {
  InstructionSet set{};
  for (const op::Instruction member : members) set[member] = true;
  return set;
}

// Instructions that only move objects between slots and constants: they need not know where iterators are.
constexpr InstructionSet kMovesObjects =
    setOf({op::LOAD_FAST, op::LOAD_CONST, op::LOAD_CLOSURE, op::COPY, op::SWAP, op::PUSH_NULL, op::NOP,
           op::KW_NAMES, op::PRECALL, op::RESUME, op::JUMP_FORWARD});
// Instructions that drop nothing, and whose C code takes no items from iterators. Python code in them is
// recorded instruction by instruction, or has been noticed as a callback.
constexpr InstructionSet kReads = setOf({op::LOAD_ATTR, op::LOAD_METHOD, op::LOAD_GLOBAL, op::LOAD_DEREF,
                                         op::BUILD_TUPLE, op::BUILD_LIST, op::MAKE_CELL, op::COPY_FREE_VARS});
// Those that drop an object besides. The recorder holds what the call has seen, so that only objects that it
// lets go of on purpose end here, and run code.
constexpr InstructionSet kDrops =
    setOf({op::STORE_FAST, op::POP_TOP, op::IS_OP, op::POP_JUMP_IF_NONE, op::POP_JUMP_IF_NOT_NONE,
           op::POP_JUMP_IF_TRUE, op::POP_JUMP_IF_FALSE});

}  // namespace

// Finds the iterators that the last instructions have moved on.
void Recorder::syncIterators(const Instr& instr) {
  if (virtuals_.iterators().empty() || !iteratorsMoved_ || kMovesObjects[instr.op]) return;
  objects_.syncIterators();
  iteratorsMoved_ = false;
}

void Recorder::noteMoves(const Instr& instr, bool finalizing) {
  const bool drops = kDrops[instr.op] && !finalizing;
  const bool calledBack = std::exchange(callbacks_, pauses_.callbacks()) != pauses_.callbacks();
  // RESUME, too, may have run a handler of a signal.
  const bool still = (kMovesObjects[instr.op] || kReads[instr.op] || drops) && !calledBack;
  iteratorsMoved_ = iteratorsMoved_ || !still;
}

// Records and executes one instruction of a frame.
Flow Recorder::record(ShadowFrame& frame, Activation& act, const Instr& instr) {
  if (verifies_ || static_cast<int32_t>(frame.stack.size()) != act.stackDepth()) [[unlikely]]
    checkShadows(frame, act, instr);
  if (blocks_.isPending()) steps_.flushBlock();
  if (!exceptions_.raised().empty()) emitRaised(context_);
  if (!finalizers_.empty()) {
    finalizers_.runPending();
    iteratorsMoved_ = true;
  }
  syncIterators(instr);
  if (!finalizers_.empty() && returns(instr)) finalizers_.clearLocals(frame, act);
  if (!context_.live()) letGo();
  checkLength(context_);
  RecordHandler handler = context_.live() ? recordHandler(instr.op) : nullptr;
  if (handler == nullptr) {
    context_.abort(diag::Code::KTG0106, {opcodeName(instr.op)});
    instruction_.setExecuted(true);  // for the instruction that waits for this frame
    return act.execute(instr);
  }
  faultPoint("step");
  const bool finalizing = !finalizers_.empty();  // the instruction may run what is tracked
  const bool inTurn = finalizing && dropsLeftFirst(instr);
  pyapi::Ref<> left = pyapi::newRef(inTurn ? act.peek(2) : nullptr);
  const pyapi::Ref<> right = pyapi::newRef(inTurn ? act.peek(1) : nullptr);
  Flow flow = handler(context_, frame, act, instr);
  if (std::exchange(left, {}) && flow == Flow::kNext) lifetimes_.runDroppedFinalizers();
  faultPoint("executed");
  noteMoves(instr, finalizing);
  if (flow == Flow::kRaise && PyErr_Occurred() != nullptr) instruction_.setExecuted(true);  // in its place
  if (!instruction_.isExecuted()) {
    KINTSUGI_CHECK(!context_.live(), "handler of op ", int(instr.op), " did not execute");
    flow = context_.execute(act, instr);
  }
  if (ending_.isPending()) {
    ending_.finish(steps_);
    iteratorsMoved_ = true;
  }
  if (classVersions_.areExpected()) classVersions_.renew();
  // What ends here may run code that takes items.
  if (!watched_.empty() && flow == Flow::kNext && context_.live() && lifetimes_.closeDropped())
    iteratorsMoved_ = true;
  if (!finalized_.empty() && context_.live() && finalized_.freeDropped()) iteratorsMoved_ = true;
  if (instr.op == op::JUMP_BACKWARD && context_.live()) sweepDropped(context_);
  return flow;
}

// Does the frame look as its shadow says?
void Recorder::checkShadows(const ShadowFrame& frame, Activation& act, const Instr& instr) {
  KINTSUGI_CHECK(static_cast<int32_t>(frame.stack.size()) == act.stackDepth(), "shadow stack of ",
                 pyapi::utf8(pyapi::qualifiedNameOf(frame.code)), " at ", instr.index, " op ", int(instr.op),
                 ": ", frame.stack.size(), " against ", act.stackDepth());
  if (verifies_) {
    std::string problem = shadowProblem(
        {constants_, frozen_, sources_, restored_, virtuals_, document_.trace, ops_}, frame, act, instr);
    if (!problem.empty() && hasOtherThreads(act.tstate)) {  // which may have changed what was just read
      context_.abort(diag::Code::KTG0303, {"by another thread"});
      problem.clear();
    }
    KINTSUGI_CHECK(problem.empty(), pyapi::utf8(pyapi::qualifiedNameOf(frame.code)), " at ", instr.index,
                   " op ", opcodeName(instr.op), ": ", problem);
  }
}

void Recorder::caught(Activation& act, int32_t depth, bool pushedLasti) {
  guarded([&] {
    ShadowFrame* frame = frameOf(act);
    if (context_.live() && frame != nullptr) recordCaught(*frame, act, depth, pushedLasti);
  });
}

void Recorder::recordCaught(ShadowFrame& frame, Activation& act, int32_t depth, bool pushedLasti) {
  faultPoint("caught");
  if (exceptions_.isUnsafe()) {
    context_.abort(diag::Code::KTG0111, {});
    return;
  }
  frames_.setCurrent(&frame);
  frame.stack.resize(depth);
  if (pushedLasti) frame.push(Shadow::constant());
  PyObject* exception = act.peek(1);
  auto known = objects_.knownObject(exception);
  frame.push(known ? *known : caughtException(exception));
  noteCaught(context_, frame.top(), exception);
  finalizers_.noteUnwound();
  if (!finalizers_.empty() && watched_.ids().size() > 1) {  // they would go in turns
    context_.abort(diag::Code::KTG0302, {finalizers_.firstName()});
    lifetimes_.releaseObjects();
    return;
  }
  if (!watched_.empty()) lifetimes_.closeDropped();
  if (!finalized_.empty()) finalized_.freeDropped();
  if (!finalized_.empty()) holdPassedFrames(context_, frame, exception);
}

namespace {

// Plain, or an object whose identity is all there is to it, or a tuple of such.
bool isFixed(PyObject* object) {
  if (isPlainDeep(object) || isIdentityValue(object)) return true;
  if (!PyTuple_CheckExact(object)) return false;
  auto** items = pyapi::tupleItems(object);
  return std::all_of(items, items + PyTuple_GET_SIZE(object), isFixed);
}

}  // namespace

// An exception that C code raised, for reasons that are guarded: made again from its arguments.
Shadow Recorder::caughtException(PyObject* exception) {
  PyObject* args = pyapi::partsOf(exception).args;
  PyTypeObject* type = Py_TYPE(exception);
  bool rebuilt = args != nullptr && isFixed(args);
  if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
    rebuilt = rebuilt && isRebuiltException(type) &&
              pyapi::initializesLike(type, pyapi::exceptionBase(type)) &&
              pyapi::partsOf(exception).dict == nullptr;
    if (rebuilt) guards_.guardTypeVersion(type);
  }
  if (rebuilt) {
    Shadow shadow = objects_.newVirtual(VirtualKind::kException, exception);
    Virtual& v = objects_.virtualOf(shadow);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      if (!guardNamesIn(context_, PyTuple_GET_ITEM(args, i)) && context_.live())
        context_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(exception)});
      v.parts.push_back(Shadow::constant());
      v.partObjects.push_back(pyapi::newRef(PyTuple_GET_ITEM(args, i)));
    }
    return shadow;
  }
  return objects_.newVirtual(VirtualKind::kOpaque, exception);
}

void Recorder::leaveFrame(Activation& act, Flow how) {
  guarded([&] { recordLeft(act, how); });
}

void Recorder::recordLeft(Activation& act, Flow how) {
  ShadowFrame* frame = frameOf(act);
  if (frame == nullptr) return;
  act.observerData = nullptr;
  std::unique_ptr<ShadowFrame> owned = frames_.leave(*frame);
  if (frames_.current() == nullptr && context_.live() && how == Flow::kReturn) finished_ = true;
  if (!context_.live()) return;
  faultPoint("left");
  transient_.frameExited(*frame);
  if (how == Flow::kRaise && finalizers_.size() > 1) {  // in the order of the locals, when the traceback goes
    context_.abort(diag::Code::KTG0302, {finalizers_.firstName()});
    lifetimes_.releaseObjects();
    return;
  }
  sweepDropped(context_);
  const bool ofGenerator = pyapi::ownedByGenerator(act.frame);
  if (expected_.frameExited(*frame, how, ofGenerator)) {
    PendingFrame& next = expected_.pending();
    next.functionShadow = virtualShadowOf(context_, next.functionShadow, next.function.get());
  }
  if (ofGenerator) {
    auto* generator = reinterpret_cast<PyObject*>(pyapi::generatorOf(act.frame));
    const auto made = virtuals_.find(generator);
    made ? objects_.noteChange(virtuals_.at(*made)) : objects_.noteChange();
    if (made && how == Flow::kYield) {
      Virtual& v = virtuals_.at(*made);
      v.frame = std::move(owned);
      lifetimes_.watch(*made);
      if (expected_.collected() == &v) expected_.addItem(expected_.result());
    }
  }
  if (how == Flow::kNext)
    context_.abort(diag::Code::KTG0105);  // handed to CPython, because tracing was switched on
  if (how == Flow::kRaise && frames_.current() == nullptr) context_.abort(diag::Code::KTG0111, {});
}

namespace {

// Guards on classes compare with what these are when the trace is installed. What the call has changed since
// it looked was not like that then: such a guard fails, and says so instead of the version, which differs
// from run to run.
void sealClasses(guard::Document& document, const ConstantPool& constants) {
  constexpr int64_t kChanged = 1;  // no version of a class that can change is as low
  for (guard::Guard& g : document.guards.guards) {
    if (g.kind != guard::GuardKind::kTypeVersion || g.number <= kChanged) continue;
    PyTypeObject* type = constants.typeAt(g.key);
    g.number = g.number == static_cast<int64_t>(*pyapi::typeVersionWord(type)) ? 0 : kChanged;
  }
}

}  // namespace

std::unique_ptr<CaptureResult> Recorder::finish() {
  pyapi::resumeCollection(PyThreadState_Get());
  auto result = std::make_unique<CaptureResult>();
  result->written = attributes_.takeWritten();
  result->refused = breakLog_.takeRefused();
  if (context_.live() && !finished_) context_.abort(diag::Code::KTG0111, {});
  if (context_.live()) steps_.writeHeldGuards();
  if (context_.live()) steps_.mergeBlocks();
  if (context_.live() && !options_.pinLikely) steps_.dropStateBlocks();  // graphs of others are made of it
  if (context_.live()) steps_.checkBlocks();
  if (context_.live()) lifetimes_.checkWatched();
  if (context_.live()) lifetimes_.checkFinalizers();
  if (!context_.live()) {
    result->failure = breakLog_.takeFailure();
    result->failedIn = breakLog_.failedIn();
    result->recording.breaks = breakLog_.takeBreaks();
    return result;
  }
  describeOpen(context_);
  breakLog_.complete();
  sealClasses(document_, constants_);
  document_.trace.constCount = static_cast<uint32_t>(constants_.size());
  document_.guards.blockCount = blocks_.newest() + 1;
  recording::Recording& recording = result->recording;
  recording.globalStates = states_.takeAll();
  recording.statesAfterCalls = states_.takeAfterCalls();
  recording.document = std::move(document_);
  recording.consts = constants_.take();
  recording.breaks = breakLog_.takeBreaks();
  recording.sourceHashes = sources_.takeHashes();
  recording.metaLevels = ops_.takeLevels();
  recording.firstBlock = blocks_.root();
  recording.argCount = argCount_;
  recording.recursion = recursion_;
  recording.kwNames = std::move(kwNames_);
  recording.gradients = facts_.gradients;
  recording.bound = facts_.bound;
  return result;
}

}  // namespace kintsugi::capture
