// Recorder: frames and instructions. The rest is in sources.cc, virtuals.cc, snapshot.cc and steps.cc.
#include "capture/recorder.h"
#include <algorithm>
#include "capture/lists.h"

#include <cstring>
#include <string_view>
#include <unordered_map>

#include "capture/breaks.h"
#include "capture/check_shadows.h"
#include "capture/class_attributes.h"
#include "capture/classes.h"
#include "capture/exceptions.h"

#include "capture/handlers/handlers.h"
#include "capture/record/table.h"
#include "pyapi/code.h"
#include "pyapi/collector.h"
#include "pyapi/containers.h"
#include "pyapi/errors.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/object_layout.h"
#include "pyapi/opcodes.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "support/fault.h"
#include "support/verification.h"

namespace kintsugi::capture {

Recorder::Recorder(const RecorderOptions& options, PyObject* function, const pyapi::Arguments& args) {
  options_ = options;
  entryState_ = torchapi::GlobalState::current();
  handledOutside_ = pyapi::newRef(pyapi::handledException());
  argCount_ = args.positional();
  kwNames_ = pyapi::newRef(args.kwnames());
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  document_.trace.function = PyUnicode_AsUTF8(pyapi::qualifiedNameOf(code));
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
    entry.shadows.push_back(readSource(guard::SourceKind::kArg, ir::kNone, nullptr, i, args.at(i)));
  }
  expectFrame(std::move(entry));
}

// What only the recorder holds goes now, in the order in which letGo() drops it: generators run code then.
Recorder::~Recorder() {
  if (!letGo_) letGo();
}

void Recorder::abort(diag::Code code, std::vector<std::string> args) {
  if (!live_) return;
  live_ = false;
  aborted_ = diagnosticAt(current_, code, std::move(args));
  abortedIn_ = current_ && current_->caller ? reinterpret_cast<PyObject*>(current_->code) : nullptr;
  for (ShadowFrame* frame = current_; frame != nullptr && frame->caller != nullptr; frame = frame->caller) {
    if (frame->transform) abortedIn_ = reinterpret_cast<PyObject*>(frame->code);  // as a whole or not at all
  }
  if (abortedIn_ == nullptr && code != diag::Code::KTG0111) abortedIn_ = newestClassBody(*this);
  ops_.discard();
  if (code != diag::Code::KTG0111) refuse(*aborted_);
}

Flow Recorder::execute(Activation& act, const Instr& instr) {
  if (refusing_) return raiseRefused();
  executed_ = true;
  return executedFlow_ = act.execute(instr);
}

namespace {

// The `__del__` of an object that dies: nobody else holds it, unless the collector has found it in a cycle.
// One that somebody calls is a function like any other.
bool isDying(pyapi::Frame* frame) {
  PyCodeObject* code = pyapi::codeOf(frame);
  PyObject* self = pyapi::argumentCount(code) > 0 ? pyapi::localAt(frame, 0) : nullptr;
  if (self == nullptr) return false;
  PyObject* method = Recorder::specialMethod(Py_TYPE(self), "__del__");
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
         !pyapi::hasHandlers(pyapi::codeOf(act.frame));
}

bool isTorchFrame(pyapi::Frame* frame) {
  return pyapi::isTorchCode(pyapi::codeOf(frame), pyapi::globalsOf(frame));
}

// Does torch's own Python code run the frame, at once or through the standard library? What it does besides
// calling the dispatcher (to print a tensor, say) changes nothing that a program knows of.
// (The frame is about to begin: it is not linked with its caller yet.)
bool isForTorch(pyapi::Frame* frame, const ShadowFrame* recorded) {
  if (isTorchFrame(frame)) return true;
  const pyapi::Frame* end = recorded != nullptr ? recorded->act->frame : nullptr;
  pyapi::Frame* caller = pyapi::currentFrame(PyThreadState_Get());
  for (; caller != nullptr && caller != end; caller = pyapi::previousOf(caller)) {
    if (isTorchFrame(caller)) return true;
  }
  return false;
}

}  // namespace

bool Recorder::wants(pyapi::Frame* frame) {
  if (!live_) return false;
  const pyapi::PendingErrorScope kept;
  if (paused_ > 0) {
    calledBack_ = calledBack_ || !(isFinalizer(frame) || isForTorch(frame, current_));
    return false;
  }
  if (torchDepth_ > 0) {
    // A higher-order operator dispatches by itself, and knows nothing of our key.
    const bool higher = pyapi::isKnownCode(pyapi::codeOf(frame), pyapi::CodeFamily::kHigherOrder);
    if (higher) ops_.pause();
    if (higher || (!isTorchFrame(frame) && !ops_.inOperator())) torchTainted_ = true;
    return false;
  }
  PyCodeObject* code = pyapi::codeOf(frame);
  bool expected = pending_.active && pending_.code == reinterpret_cast<PyObject*>(code);
  return expected || !isFinalizer(frame);
}

bool Recorder::enterFrame(Activation& act, bool throwing) {
  act.observerData = nullptr;
  if (!wants(act.frame)) return false;
  if (recursionAtStart_ == 0) recursionAtStart_ = pyapi::recursionLeft(act.tstate) + 1;
  recursion_ = std::max(recursion_, recursionAtStart_ - pyapi::recursionLeft(act.tstate));
  bool accepted = false;
  try {
    faultPoint("enter");
    accepted = resuming_ ? resumeRestored(act, throwing) : (!throwing || throwsInto(act)) && acceptFrame(act);
  } catch (const std::exception& error) {
    abort(diag::Code::KTG0000, {error.what()});
  }
  if (!accepted && throwing && isQuietClose(act)) return false;
  if (!accepted)
    abort(diag::Code::KTG0102, {PyUnicode_AsUTF8(pyapi::qualifiedNameOf(pyapi::codeOf(act.frame)))});
  if (refusing_) raiseRefused();  // before the frame runs
  return accepted && live_;
}

bool Recorder::acceptFrame(Activation& act) {
  PendingFrame& pending = pending_;
  if (pyapi::ownedByGenerator(act.frame)) {
    auto* generator = reinterpret_cast<PyObject*>(pyapi::generatorOf(act.frame));
    if (closing_ > 0) {  // one that another generator, which is closed, delegates to or holds
      auto it = virtualIds_.find(generator);
      return it != virtualIds_.end() && resumeGenerator(act, *virtuals_[it->second]);
    }
    if (!collectors_.empty() && collectors_.back().generator->object.get() == generator) {
      return resumeGenerator(act, *collectors_.back().generator);
    }
    if (!pending.active || pending.generator == nullptr || pending.generator->object.get() != generator)
      return false;
    return resumeGenerator(act, *pending.generator);
  }
  auto* code = pyapi::codeOf(act.frame);
  if (!pending.active || pending.generator != nullptr || reinterpret_cast<PyObject*>(code) != pending.code)
    return false;
  auto frame = std::make_unique<ShadowFrame>();
  frame->act = &act;
  frame->caller = current_;
  frame->code = code;
  frame->function = pyapi::newRef(reinterpret_cast<PyObject*>(pyapi::functionOf(act.frame)));
  frame->functionShadow = pending.functionShadow;
  frame->site = std::move(pending.site);
  frame->pinResult = pending.pinResult;
  frame->rebuildable = pending.rebuildable && (current_ == nullptr || canExit(*current_));
  if (!bindArguments(*frame, act, pending)) return false;
  if (!mortals_.empty() && current_ != nullptr) Mortals::handOver(*this, *current_, code);
  pending.active = false;
  if (!afterPending_.empty()) pendingOwner_ = frame.get();
  act.observerData = frame.get();
  current_ = frame.get();
  frames_.push_back(std::move(frame));
  return true;
}

// The shadows of the parameters follow from how CPython has just bound them.
bool Recorder::bindArguments(ShadowFrame& frame, Activation& act, PendingFrame& pending) {
  PyCodeObject* code = frame.code;
  const auto local = [&act](int index) { return pyapi::localAt(act.frame, index); };
  frame.locals.assign(pyapi::localsPlusCount(code), Shadow::null());
  frame.stack.reserve(pyapi::stackCapacity(code));
  int parameters = pyapi::argumentCount(code) + pyapi::keywordOnlyCount(code);
  if (pending.selfIsNew && !pending.args.empty()) {
    if (pending.args[0] == nullptr) {
      pending.args[0] = local(0);
      auto known = knownObject(local(0));  // made by a __new__ in Python
      const bool raised = PyExceptionInstance_Check(local(0));
      pending.shadows[0] =
          known ? *known : newVirtual(raised ? VirtualKind::kException : VirtualKind::kInstance, local(0));
      for (size_t i = 1; raised && !known && i < pending.positional;
           ++i) {  // what BaseException.__new__ keeps
        virtualOf(pending.shadows[0]).parts.push_back(pending.shadows[i]);
        virtualOf(pending.shadows[0]).partObjects.push_back(pyapi::newRef(pending.args[i]));
      }
      frame.site.replacement = pending.shadows[0];
      frame.site.replacementObject = pyapi::newRef(local(0));
      newInstance_ = pending.shadows[0];
    }
  }
  uint64_t usedBits = 0;  // most calls have few arguments
  std::vector<bool> usedMany(pending.args.size() > 64 ? pending.args.size() : 0, false);
  const auto isUsed = [&](size_t i) { return usedMany.empty() ? (usedBits >> i & 1) != 0 : usedMany[i]; };
  const auto use = [&](size_t i) {
    if (usedMany.empty()) {
      usedBits |= uint64_t{1} << i;
    } else {
      usedMany[i] = true;
    }
  };
  PyObject* function = frame.function.get();
  for (int i = 0; i < parameters; ++i) {
    if (local(i) == nullptr) return false;
    if (i < pyapi::argumentCount(code) && static_cast<size_t>(i) < pending.positional) {
      frame.locals[i] = pending.shadows[i];
      use(i);
      continue;
    }
    PyObject* name = pyapi::variableName(code, i);
    bool found = false;
    for (Py_ssize_t k = 0; pending.kwnames && k < PyTuple_GET_SIZE(pending.kwnames); ++k) {
      if (pyapi::equalTexts(PyTuple_GET_ITEM(pending.kwnames, k), name)) {
        frame.locals[i] = pending.shadows[pending.positional + k];
        use(pending.positional + k);
        found = true;
      }
    }
    if (found) continue;
    auto value = defaultOf(function, pending.functionShadow, i, local(i));
    if (!value) return false;
    frame.locals[i] = *value;
  }
  int next = parameters;
  if (pyapi::flagsOf(code) & CO_VARARGS) {
    std::vector<Shadow> rest;
    for (size_t i = pyapi::argumentCount(code); i < pending.positional; ++i) {
      rest.push_back(pending.shadows[i]);
      use(i);
    }
    frame.locals[next] = tupleOf(local(next), std::move(rest));
    ++next;
  }
  if (pyapi::flagsOf(code) & CO_VARKEYWORDS) {
    Shadow dict = newVirtual(VirtualKind::kDict, local(next));
    for (Py_ssize_t k = 0; pending.kwnames && k < PyTuple_GET_SIZE(pending.kwnames); ++k) {
      size_t at = pending.positional + k;
      if (!isUsed(at)) setEntry(virtualOf(dict), PyTuple_GET_ITEM(pending.kwnames, k), pending.shadows[at]);
      use(at);
    }
    frame.locals[next] = dict;
  }
  for (size_t i = 0; i < pending.args.size(); ++i) {
    if (!isUsed(i)) return false;
  }
  return true;
}

// A parameter that the call did not give: from the function's defaults, which become a dependency.
std::optional<Shadow> Recorder::defaultOf(PyObject* function, Shadow shadow, int parameter,
                                          PyObject* object) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  if (shadow.isVirtual()) {
    Virtual& v = virtualOf(shadow);
    if (parameter < pyapi::argumentCount(code)) {
      if (v.parts.empty() || v.partObjects.empty() || !v.partObjects[0]) return std::nullopt;
      PyObject* defaults = v.partObjects[0].get();
      Py_ssize_t at = parameter - (pyapi::argumentCount(code) - PyTuple_GET_SIZE(defaults));
      return elementOf(v.parts[0], defaults, at);
    }
    if (v.partObjects.size() < 2 || !v.partObjects[1]) return std::nullopt;
    return dictEntry(v.parts[1], v.partObjects[1].get(), pyapi::variableName(code, parameter), object);
  }
  ir::SourceId source = sourceOf(shadow, function);
  if (parameter < pyapi::argumentCount(code)) {
    PyObject* defaults = PyFunction_GET_DEFAULTS(function);
    if (defaults == nullptr) return std::nullopt;
    Py_ssize_t at = parameter - (pyapi::argumentCount(code) - PyTuple_GET_SIZE(defaults));
    Shadow tuple = readSource(guard::SourceKind::kDefaults, source, nullptr, 0, defaults);
    if (!tuple.isSource()) return elementOf(tuple, defaults, at);  // the trace has made them
    if (isArgument(shadow)) {
      guardLength(tuple, defaults, PyTuple_GET_SIZE(defaults));
    } else {
      guard(guard::GuardKind::kIs, tuple.sourceId(), constId(defaults));
    }
    if (isPlain(object) && !isArgument(shadow)) return Shadow::constant();
    return readSource(guard::SourceKind::kTupleItem, tuple.sourceId(), nullptr, at, object);
  }
  PyObject* defaults = PyFunction_GET_KW_DEFAULTS(function);
  if (defaults == nullptr) return std::nullopt;
  Shadow dict = readSource(guard::SourceKind::kKwDefaults, source, nullptr, 0, defaults);
  PyObject* name = pyapi::variableName(code, parameter);
  if (!dict.isSource()) return dictEntry(dict, defaults, name, object);
  return readSource(guard::SourceKind::kDictItem, dict.sourceId(), name, 0, object);
}

namespace {

// At the end of frames and of loop bodies. What C code was given, and dropped, may still be asked for.
void sweepDropped(RecorderState& state) {
  if (state.collectors_.empty() && state.results_.empty() && state.afterPending_.empty()) {
    state.droppable_.sweep(state);
  }
}

}  // namespace

namespace {

bool hasOtherThreads(PyThreadState* own) {
  PyThreadState* first = PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(own));
  return first != own || PyThreadState_Next(first) != nullptr;
}

// A container that grows in a loop is part of the snapshot of each turn.
constexpr size_t kMostParts = 4'000'000;

void checkLength(Recorder& rec) {
  const RecorderState& state = rec.known();
  const size_t most = state.options_.maxInstructions;
  if (state.document_.trace.code.size() > most) {
    rec.abort(diag::Code::KTG0104, {std::to_string(most) + " instructions"});
  } else if (state.partCount_ > kMostParts) {
    rec.abort(diag::Code::KTG0104, {std::to_string(kMostParts) + " values in snapshots"});
  }
}

// How the instruction under way is left when the recorder has failed in the middle of it: it is run, unless
// that has been done.
Flow leaveFailed(RecorderState& state, Activation& act, const Instr& instr) {
  if (!std::exchange(state.executed_, true)) return act.execute(instr);
  if (PyErr_Occurred()) return Flow::kRaise;
  if (state.executedFlow_ != Flow::kRaise) return state.executedFlow_;
  PyErr_SetString(PyExc_SystemError,
                  "an internal error in Kintsugi has lost the exception of an instruction");
  return Flow::kRaise;
}

bool returns(const Instr& instr) { return instr.op == op::RETURN_VALUE || instr.op == op::RETURN_CONST; }

}  // namespace

Flow Recorder::step(Activation& act, const Instr& instr) {
  ShadowFrame* frame = frameOf(act);
  if (refusing_ && paused_ == 0) return raiseRefused();
  if (!live_ && !letGo_) letGo();
  if (!live_ || frame == nullptr || paused_ > 0) return act.execute(instr);
  pyapi::postponeCollection(act.tstate);
  current_ = frame;
  instr_ = &instr;
  depthBefore_ = frame->stack.size();
  cachedState_ = ir::kNone;
  executed_ = false;
  executedFlow_ = Flow::kNext;
  pending_.active = false;  // of an earlier instruction, whose frame was not entered
  mutatedInStep_ = false;
  Flow flow = Flow::kNext;
  try {
    KINTSUGI_CHECK(static_cast<int32_t>(frame->stack.size()) == act.stackDepth(), "shadow stack of ",
                   PyUnicode_AsUTF8(pyapi::qualifiedNameOf(frame->code)), " at ", instr.index, " op ",
                   int(instr.op), ": ", frame->stack.size(), " against ", act.stackDepth());
    if (verifying()) {
      std::string problem = shadowProblem(*this, *frame, act, instr);
      if (!problem.empty() && hasOtherThreads(act.tstate)) {  // which may have changed what was just read
        abort(diag::Code::KTG0303, {"by another thread"});
        problem.clear();
      }
      KINTSUGI_CHECK(problem.empty(), PyUnicode_AsUTF8(pyapi::qualifiedNameOf(frame->code)), " at ",
                     instr.index, " op ", opcodeName(instr.op), ": ", problem);
    }
    if (blockPending_) flushBlock();
    if (!raised_.empty()) settleRaised(*this);
    if (!iterators_.empty()) settleIterators(*this);
    if (!mortals_.empty()) Mortals::settle(*this);
    if (!mortals_.empty() && returns(instr)) Mortals::clearLocals(*this, *frame, act);
    if (!live_ && !letGo_) letGo();
    checkLength(*this);
    RecordHandler handler = live_ ? recordHandler(instr.op) : nullptr;
    if (handler == nullptr) {
      abort(diag::Code::KTG0106, {opcodeName(instr.op)});
      executed_ = true;  // for the instruction that waits for this frame
      return act.execute(instr);
    }
    faultPoint("step");
    flow = handler(*this, *frame, act, instr);
    faultPoint("executed");
    if (!executed_) {
      KINTSUGI_CHECK(!live_, "handler of op ", int(instr.op), " did not execute");
      flow = execute(act, instr);
    }
    if (!classVersions_.guards.empty()) renewVersions(*this);
    if (!watched_.empty() && flow == Flow::kNext && live_) closeDropped();
    if (!finalized_.empty() && live_) finalized_.freeDropped(*this);
    if (instr.op == op::JUMP_BACKWARD && live_) sweepDropped(*this);
  } catch (const std::exception& error) {
    paused_ = 0;
    abort(diag::Code::KTG0000, {error.what()});
    flow = leaveFailed(*this, act, instr);
  }
  return flow;
}

void Recorder::caught(Activation& act, int32_t depth, bool pushedLasti) try {
  ShadowFrame* frame = frameOf(act);
  if (!live_ || frame == nullptr) return;
  faultPoint("caught");
  if (unsafeException_) {
    abort(diag::Code::KTG0111, {});
    return;
  }
  current_ = frame;
  frame->stack.resize(depth);
  if (pushedLasti) frame->push(Shadow::constant());
  PyObject* exception = act.peek(1);
  auto known = knownObject(exception);
  frame->push(known ? *known : caughtException(exception));
  noteCaught(*this, frame->top(), exception);
  newestFirst_ = !mortals_.empty();
  if (!mortals_.empty() && watched_.size() > 1) {  // they would go in turns
    abort(diag::Code::KTG0302, {pyapi::typeNameOf(mortals_.front().object)});
    letGo();
    return;
  }
  if (!watched_.empty()) closeDropped();
  if (!finalized_.empty()) finalized_.freeDropped(*this);
  if (!finalized_.empty()) holdPassedFrames(*this, *frame, exception);
} catch (const std::exception& error) {
  abort(diag::Code::KTG0000, {error.what()});
}

void Recorder::expectFrame(PendingFrame pending) {
  pending_ = std::move(pending);
  pending_.active = true;
  pending_.functionShadow = own(*this, pending_.functionShadow, pending_.function.get());
  for (size_t i = 0; i < pending_.args.size(); ++i)
    pending_.shadows[i] = own(*this, pending_.shadows[i], pending_.args[i]);
  returned_ = Shadow::null();
  if (!insideOwner()) {
    afterPending_.clear();
    results_.clear();
  }
  frameRaised_ = false;
}

bool Recorder::insideOwner() const {
  for (ShadowFrame* f = current_; f != nullptr; f = f->caller) {
    if (f == pendingOwner_) return !afterPending_.empty();
  }
  return false;
}

bool Recorder::isOpaqueCode(PyObject* code) const {
  return options_.opaqueCodes && options_.opaqueCodes->contains(code);
}

// What the expected frame returned. Where it was not entered after all, nothing is known.
Shadow Recorder::returned() {
  if (!returned_.isNull()) return returned_;
  abort(diag::Code::KTG0102, {"a function whose frame was not seen"});
  return Shadow::constant();
}

namespace {

// Plain, or an object whose identity is all there is to it, or a tuple of such.
bool isFixed(PyObject* object) {
  if (Recorder::isPlainDeep(object) || Recorder::isIdentityValue(object)) return true;
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
    if (rebuilt) guardTypeVersion(type);
  }
  if (rebuilt) {
    Shadow shadow = newVirtual(VirtualKind::kException, exception);
    Virtual& v = virtualOf(shadow);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      v.parts.push_back(Shadow::constant());
      v.partObjects.push_back(pyapi::newRef(PyTuple_GET_ITEM(args, i)));
    }
    return shadow;
  }
  return newVirtual(VirtualKind::kOpaque, exception);
}

void Recorder::leaveFrame(Activation& act, Flow how) try {
  ShadowFrame* frame = frameOf(act);
  if (frame == nullptr) return;
  act.observerData = nullptr;
  std::unique_ptr<ShadowFrame> owned;
  for (size_t i = frames_.size(); i-- > 0;) {
    if (frames_[i].get() != frame) continue;
    owned = std::move(frames_[i]);
    frames_.erase(frames_.begin() + static_cast<ptrdiff_t>(i));
    break;
  }
  current_ = frame->caller;
  if (current_ == nullptr && live_ && how == Flow::kReturn) finished_ = true;
  if (!live_) return;
  faultPoint("left");
  transforms_.left(*this, *frame);
  if (how == Flow::kRaise && mortals_.size() > 1) {  // in the order of the locals, when the traceback goes
    abort(diag::Code::KTG0302, {pyapi::typeNameOf(mortals_.front().object)});
    letGo();
    return;
  }
  sweepDropped(*this);
  frameRaised_ = how == Flow::kRaise;
  const bool ofGenerator = pyapi::ownedByGenerator(act.frame);
  gaveItem_ = how == Flow::kYield || (how == Flow::kReturn && !ofGenerator);
  if (ofGenerator) touched();
  if (!afterPending_.empty() && frame == pendingOwner_) {
    pendingOwner_ = nullptr;
    if (how == Flow::kReturn) {
      results_.push_back(returned_);
      pending_ = std::move(afterPending_.front());
      pending_.active = true;
      pending_.functionShadow = own(*this, pending_.functionShadow, pending_.function.get());
      afterPending_.pop_front();
    } else {
      afterPending_.clear();
    }
  }
  if (how == Flow::kYield && ofGenerator) {
    auto* generator = reinterpret_cast<PyObject*>(pyapi::generatorOf(act.frame));
    auto it = virtualIds_.find(generator);
    if (it != virtualIds_.end()) {
      virtuals_[it->second]->frame = std::move(owned);
      watch(it->second);
      if (!collectors_.empty() && collectors_.back().generator == virtuals_[it->second].get()) {
        collectors_.back().items.push_back(returned_);
      }
    }
  }
  if (how == Flow::kNext) abort(diag::Code::KTG0105);  // handed to CPython, because tracing was switched on
  if (how == Flow::kRaise && current_ == nullptr) abort(diag::Code::KTG0111, {});
} catch (const std::exception& error) {
  abort(diag::Code::KTG0000, {error.what()});
}

namespace {

// Guards on classes compare with what these are when the trace is installed. What the call has changed since
// it looked was not like that then: such a guard fails, and says so instead of the version, which differs
// from run to run.
void sealClasses(guard::Document& document, const std::vector<pyapi::Ref<>>& consts) {
  constexpr int64_t kChanged = 1;  // no version of a class that can change is as low
  for (guard::Guard& g : document.guards.guards) {
    if (g.kind != guard::GuardKind::kTypeVersion || g.number <= kChanged) continue;
    auto* type = reinterpret_cast<PyTypeObject*>(consts[g.key].get());
    g.number = g.number == static_cast<int64_t>(*pyapi::typeVersionWord(type)) ? 0 : kChanged;
  }
}

}  // namespace

std::unique_ptr<CaptureResult> Recorder::finish() {
  pyapi::resumeCollection(PyThreadState_Get());
  auto result = std::make_unique<CaptureResult>();
  result->written = std::move(written_);
  result->refused = std::move(refused_);
  if (live_ && !finished_) abort(diag::Code::KTG0111, {});
  if (live_) checkBlocks();
  if (live_) checkWatched();
  if (live_) Mortals::check(*this);
  if (!live_) {
    result->failure = std::move(aborted_);
    result->failedIn = abortedIn_;
    result->breaks = std::move(breaks_);
    return result;
  }
  describeOpen(*this);
  live_ = false;
  sealClasses(document_, consts_);
  document_.trace.constCount = static_cast<uint32_t>(consts_.size());
  document_.guards.blockCount = block_ + 1;
  result->globalStates = std::move(globalStates_);
  result->globalStates.insert(result->globalStates.begin(), entryState_);
  result->statesBehind = std::move(statesBehind_);
  result->document = std::move(document_);
  result->consts = std::move(consts_);
  result->tensorInfos = ops_.takeInfos();
  result->breaks = std::move(breaks_);
  result->sourceHashes = std::move(sourceHashes_);
  result->metaLevels = ops_.takeLevels();
  result->firstBlock = rootBlock_;
  result->argCount = argCount_;
  result->recursion = recursion_;
  result->kwNames = std::move(kwNames_);
  result->gradients = gradients_;
  result->bound = bound_;
  return result;
}

}  // namespace kintsugi::capture
