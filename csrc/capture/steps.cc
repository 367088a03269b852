// Steps: instructions of the trace, opaque and modelled calls.
#include "capture/steps.h"

#include <algorithm>
#include <string_view>

#include "capture/aliases.h"
#include "capture/breaks.h"
#include "capture/finalizer_tracker.h"
#include "capture/foreign.h"
#include "capture/locals_watch.h"
#include "capture/own_handlers.h"
#include "capture/tables/pauses.h"
#include "ir/value_maker.h"
#include "pyapi/callable_name.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/generator.h"
#include "pyapi/known_objects.h"
#include "pyapi/opcodes.h"
#include "pyapi/plain.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/op_effects.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

using ir::Op;
using ir::Operand;
using ir::Type;
using ir::TypeKind;

size_t Steps::emit(Op op, const std::vector<Operand>& operands, const std::vector<Type>& results,
                   ir::StateId snap) {
  if ((ir::opInfo(op).flags & ir::kRaise) != 0 && snap != ir::kNone) checkHandlers(snap);
  for (const Operand& operand : operands) {
    if (operand.kind != ir::OperandKind::kRecipe || !roles_.states.isRunning(operand.id)) continue;
    roles_.breaks.abort(diag::Code::KTG0302,
                        {"generator that runs"});  // it can't be built before its frame is
  }
  const size_t at = document_.trace.append(op, operands, results, snap);
  behindEffect_ = behindEffect_ || ((ir::opInfo(op).flags & ir::kEffect) != 0 && op != Op::kSetGrad);
  if (op == Op::kCall || op == Op::kCallKnown) {
    states_.noteCall(document_.trace.code[at].firstResult);
  }
  return at;
}

// An operation that raises in a frame that can't be rebuilt raises in the first outer frame that can be
// (runtime/replay.cc). That would skip handlers in the frames between, so the recording ends if there is one.
void Steps::checkHandlers(ir::StateId snap) {
  const bool transform = roles_.surroundings.isInTransform();
  for (ShadowFrame* frame = frames_.current(); frame != nullptr; frame = frame->caller) {
    if (snap == ir::kNone || document_.trace.states[snap].rebuildable) return;
    snap = document_.trace.states[snap].parent;
    // torch's own handlers only leave the transform, which a replay never enters.
    if (frame->transform || (transform && roles_.surroundings.leavesTransforms(frame->code))) continue;
    const pyapi::Handler handler = pyapi::findHandler(frame->code, frame->act->pc - 1);
    // A handler of the program begins with PUSH_EXC_INFO. A clean-up that CPython's compiler has made does
    // not.
    if (handler.target < 0 || CodeInfo::of(frame->code)->at(handler.target).op != op::PUSH_EXC_INFO) continue;
    roles_.breaks.abort(diag::Code::KTG0103, {"an operation that may raise, under a handler"});
    return;
  }
}

// Writes the guard block for what an opaque step returned or may have changed. The block comes right after
// the step, with the state at which the next instruction begins.
void Steps::flushBlock() { flushBlockAt(roles_.snapshots.stateBefore()); }

void Steps::flushBlockAt(ir::StateId snap) {
  blocks_.setPending(false);
  emit(Op::kGuardBlock, {Operand::integer(blocks_.newest())}, {}, snap);
  if (!aliases_.empty()) roles_.surroundings.applyAliases();
}

void Steps::readAgain() {
  // A second operator of one instruction shares the block, which compares the state behind the last one.
  if (blocks_.isPending()) {
    std::erase_if(document_.guards.guards, [this](const guard::Guard& g) {
      return g.kind == guard::GuardKind::kGlobalState && g.block == blocks_.newest();
    });
  } else {
    blocks_.next();
  }
  blocks_.setPending(true);
  invalidateReads();
  forgetEscapedObjects();
  behindOperator_ = true;
}

void Steps::invalidateReads() {
  ops_.expireLevels();
  invalidateSources();
}

// What has been read of objects is read again. What is known of tensors is left to the caller.
void Steps::invalidateSources() {
  blocks_.invalidateOlder();
  sizeReads_.forgetAll();
  for (const VirtualTable::Followed& followed : virtuals_.iterators())
    virtuals_.at(followed.id).unpinned = true;
  behindOperator_ = behindEffect_ = false;
  frozen_.thaw();
  guard::Guard state{guard::GuardKind::kGlobalState, blocks_.newest(), ir::kNone, ir::kNone, ir::kNone, 0};
  state.number = states_.add(torchapi::GlobalState::current());
  document_.guards.guards.push_back(state);
}

void Steps::guardHeld(ir::ValueId tensor, ir::MetaId meta) {
  held_.push_back({blocks_.validFrom(), tensor, meta});
}

namespace {

// True for a function in Python, which C code may call if it gets it as an argument.
bool isPythonCode(PyObject* object) {
  if (PyMethod_Check(object)) object = PyMethod_GET_FUNCTION(object);
  return PyFunction_Check(object);
}

// The version counters of the tensors among the arguments, which count writes to them.
std::vector<uint64_t> versionsOf(const std::vector<PyObject*>& args) {
  std::vector<uint64_t> versions;
  for (PyObject* arg : args) {
    uint64_t version = 0;
    if (torchapi::isTensor(arg)) torchapi::tensorVersion(torchapi::tensorImplOf(arg), version);
    versions.push_back(version);
  }
  return versions;
}

// Is the object, or for a plain container what it holds, one that others have too?
bool holdsShared(const VirtualTable& virtuals, Shadow shadow) {
  if (!shadow.isVirtual()) return false;
  const Virtual& v = virtuals[shadow];
  const auto isShared = [&](Shadow part) { return virtuals.isShared(part); };
  if (v.kind == VirtualKind::kList || v.kind == VirtualKind::kSet)
    return std::ranges::any_of(v.parts, isShared);
  if (v.kind != VirtualKind::kDict || !v.entries) return virtuals.isShared(shadow);
  PyObject *key = nullptr, *encoded = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(v.entries.get(), &at, &key, &encoded) != 0;) {
    if (isShared(decodeShadow(encoded))) return true;
  }
  return false;
}

// A run may be given other objects than the recording was, whose special methods may run Python code in the
// call. So their classes are guarded: what was noticed while recording then holds for each run.
void guardClasses(SourceGuards& guards, const CallValues& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!torchapi::isTensor(ctx.args.any(i))) guards.guardType(ctx.shadows.any(i), ctx.args.any(i));
  }
}

}  // namespace

bool Steps::callOperands(CallValues& ctx, CallKind kind, std::vector<Operand>& operands) {
  Operand callee;
  Shadow callable = ctx.callableShadow;
  if (kind == CallKind::kOpaque && !roles_.snapshots.escapeHandled()) return false;
  if (kind != CallKind::kOpaque) guardClasses(roles_.guards, ctx);
  if (callable.isSource() && !roles_.arguments.comesFromStep(callable) &&
      !roles_.guards.pin(callable, ctx.callable))
    return false;
  if (kind == CallKind::kOpaque && callable.isVirtual() && !roles_.snapshots.escape(callable, ctx.callable))
    return false;
  if (!roles_.snapshots.operandOf(callable, ctx.callable, callee)) {
    roles_.breaks.abort(diag::Code::KTG0302, {pyapi::callableName(ctx.callable)});
    return false;
  }
  operands.push_back(callee);
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow shadow = ctx.shadows.any(i);
    if (torchapi::isTensor(ctx.args.any(i)) && !isForeign(shadow, ctx.args.any(i)))
      shadow = roles_.arguments.tensorShadow(ctx.args.any(i), shadow);
    // The step may keep what it is given, or give a part of it back; a pure one keeps no container itself.
    const bool shared = kind == CallKind::kPure ? holdsShared(virtuals_, shadow) : virtuals_.isShared(shadow);
    if ((kind == CallKind::kOpaque || shared) && !roles_.snapshots.escape(shadow, ctx.args.any(i)))
      return false;
    Operand operand;
    if (!roles_.breaks.isLive() || !roles_.snapshots.operandOf(shadow, ctx.args.any(i), operand)) {
      roles_.breaks.abort(diag::Code::KTG0302, {pyapi::typeNameOf(ctx.args.any(i))});
      return false;
    }
    operands.push_back(operand);
  }
  return true;
}

size_t Steps::emitCall(CallValues& ctx, CallKind kind, const std::vector<Operand>& operands,
                       ir::StateId snap) {
  const Op op = kind == CallKind::kOpaque  ? Op::kCall
                : kind == CallKind::kKnown ? Op::kCallKnown
                                           : Op::kCallPure;
  const size_t at = emit(op, operands, {{TypeKind::kObject, ir::kNone}}, snap);
  if (ctx.kwnames != nullptr) {
    std::vector<Operand> names;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ctx.kwnames); ++i) {
      names.push_back(document_.trace.stringOperand(pyapi::encoded(PyTuple_GET_ITEM(ctx.kwnames, i))));
    }
    Operand list = document_.trace.listOperand(names);
    document_.trace.code[at].kwCount = list.count;
    document_.trace.code[at].kwNames = list.id;
  }
  return at;
}

Shadow Steps::appendCall(CallValues& ctx, CallKind kind, const std::vector<Operand>& operands,
                         ir::StateId snap, PyObject* result) {
  if (blocks_.isPending()) roles_.breaks.abort(diag::Code::KTG0103, {"a second step of one instruction"});
  const ir::ValueId value = document_.trace.code[emitCall(ctx, kind, operands, snap)].firstResult;
  blocks_.next();
  blocks_.setPending(true);
  if (kind == CallKind::kOpaque) invalidateReads();
  finalized_.add(result);
  const bool alone = Py_REFCNT(result) == 1;
  const Shadow shadow =
      roles_.guards.readSource(guard::SourceKind::kValue, ir::kNone, nullptr, value, result);
  if (alone) finalizers_.track(result, shadow);
  return shadow;
}

// True if the generator may delegate to another one (`yield from`), which is closed with it.
bool mayDelegate(PyCodeObject* code) {
  const CodeInfo* info = CodeInfo::of(code);
  for (int32_t at = 0; info != nullptr && at < info->size(); at = info->at(at).next) {
    if (info->at(at).op == op::SEND || info->at(at).op == op::SEND_AND_DROP) return true;
  }
  return false;
}

// True if dropping the object runs code and nobody else holds it. A replay would drop it at another moment
// than the program does.
bool runsWhenDropped(PyObject* object) {
  if (Py_REFCNT(object) > 1) return false;
  if (PyGen_CheckExact(object)) {
    PyCodeObject* code = pyapi::codeOf(pyapi::asGenerator(object));
    return hasOwnHandlers(code) || mayDelegate(code);
  }
  return !hasTrackedFinalizer(object) && FinalizedObjects::runsPython(object);
}

// After this step a replay drops an object of the trace that was built. The program may drop it later, and a
// weak reference would tell the difference. Returns false if the recording has ended.
bool Steps::checkWeaklyHeld(CallValues& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    const Shadow shadow = ctx.shadows.any(i);
    if (shadow.isSource() && roles_.arguments.comesFromStep(shadow)) finalized_.addPart(ctx.args.any(i));
    if (!shadow.isVirtual()) continue;
    const Virtual& v = virtuals_[ctx.shadows.any(i)];
    if (v.kind != VirtualKind::kInstance || v.value == ir::kNone || !isWeaklyReferenced(ctx.args.any(i)))
      continue;
    roles_.breaks.abort(diag::Code::KTG0302,
                        {std::string(pyapi::typeNameOf(ctx.args.any(i))) + " (weakly referenced)"});
    return false;
  }
  return true;
}

bool Steps::runStep(CallValues& ctx, const char* reason, StepRun& run) {
  for (size_t i = 0; i < ctx.total(); ++i) {  // iterating over a map object calls its function
    if (ctx.shadows.any(i).isVirtual() && virtuals_[ctx.shadows.any(i)].kind == VirtualKind::kMap) {
      run.kind = CallKind::kOpaque;
      reason = "";
    }
  }
  const bool opaque = run.kind == CallKind::kOpaque;
  finalized_.freeForStep();
  if (!callOperands(ctx, run.kind, run.operands)) {
    run.flow = execute(ctx.act, ctx.instr);
    return false;
  }
  run.snap = roles_.snapshots.stateBefore();
  for (size_t i = 0; i < ctx.total(); ++i) run.alive.push_back(pyapi::newRef(ctx.args.any(i)));
  run.args.assign(ctx.args.begin(), ctx.args.end());
  ctx.args.replace(run.args.data());
  if (opaque && reason != nullptr)
    roles_.breaks.noteBreak(diag::Code::KTG0101, {pyapi::callableName(ctx.callable)});
  run.versions = versionsOf(run.args);
  pauses_.expectNoCalls();
  if (opaque) classVersions_.expectWrites();
  const bool held = opaque && !finalizers_.empty();
  if (held && !finalizers_.release()) {
    run.flow = execute(ctx.act, ctx.instr);
    return false;
  }
  const LocalsWatch watch(frames_, virtuals_);
  {
    const Paused paused(pauses_);
    run.flow = execute(ctx.act, ctx.instr);
  }
  if (roles_.breaks.isLive() && watch.changed())
    roles_.breaks.abort(diag::Code::KTG0303, {"a variable of a frame that was set through f_locals"});
  if (held) finalizers_.reclaim();
  if (held && !roles_.breaks.isLive()) return false;
  if (run.flow != Flow::kRaise) return true;
  writeRaisedStep(ctx, run);
  return false;
}

void Steps::writeStep(CallValues& ctx, const StepRun& run, Shadow& result) {
  const bool opaque = run.kind == CallKind::kOpaque;
  if (ctx.pushes && runsWhenDropped(ctx.act.peek(ctx.resultDepth))) {
    roles_.breaks.abort(diag::Code::KTG0302, {pyapi::typeNameOf(ctx.act.peek(ctx.resultDepth))});
    return;
  }
  if (!opaque && !checkWeaklyHeld(ctx)) return;
  if (opaque && roles_.breaks.isStrict() && versionsOf(run.args) != run.versions) {
    roles_.errors.refuse(diagnosticAt(frames_.current(), diag::Code::KTG0101,
                                      {pyapi::callableName(ctx.callable) + ", which writes to a tensor,"}));
  }
  diag::Diagnostic* last = breakLog_.last();
  if (pauses_.calledBack() && opaque && std::ranges::any_of(run.args, isPythonCode) && last != nullptr &&
      !PyFunction_Check(ctx.callable) && last->code == diag::Code::KTG0101 &&
      last->args[0] == pyapi::callableName(ctx.callable)) {
    last->code = diag::Code::KTG0102;
  }
  // Code of the program ran in a call that should run only C code, such as a comparison or a property of a
  // metaclass. It may have changed what the trace knows.
  const bool unforeseen = pauses_.calledBack() && !opaque;
  result =
      appendCall(ctx, run.kind, run.operands, run.snap, ctx.pushes ? ctx.act.peek(ctx.resultDepth) : Py_None);
  if (unforeseen) invalidateReads();
  if (unforeseen || opaque) forgetEscaped(ctx);
}

Flow Steps::callStep(CallValues& ctx, CallKind kind, const char* reason, Shadow& result) {
  StepRun run;
  run.kind = kind;
  if (runStep(ctx, reason, run)) writeStep(ctx, run, result);
  return run.flow;
}

void Steps::beginDoneOnce(CallValues& ctx, const StepRun& run) {
  if (blocks_.isPending()) roles_.breaks.abort(diag::Code::KTG0103, {"a second step of one instruction"});
  blocks_.next();
  doneOnce_.push_back(blocks_.newest());
  invalidateSources();
  ops_.expireChanged();  // in later runs nothing is changed here
  flushBlockAt(run.snap);
  forgetEscaped(ctx);
}

void Steps::writeDoneOnce(CallValues& ctx, const StepRun& run) {
  if (roles_.breaks.isLive())
    document_.trace.code[emitCall(ctx, CallKind::kKnown, run.operands, ir::kNone)].deferrable = true;
}

Flow Steps::callQuietly(CallValues& ctx, bool mayRaise) {
  std::vector<Operand> operands;
  if (!callOperands(ctx, CallKind::kKnown, operands)) return execute(ctx.act, ctx.instr);
  const ir::StateId snap = mayRaise ? roles_.snapshots.stateBefore() : ir::kNone;
  pauses_.expectNoCalls();
  Flow flow;
  {
    const Paused paused(pauses_);
    flow = execute(ctx.act, ctx.instr);
  }
  if (flow != Flow::kNext || pauses_.calledBack()) {
    roles_.breaks.abort(diag::Code::KTG0303, {"Python code ran where a result was looked up"});
    return flow;
  }
  if (roles_.breaks.isLive())
    document_.trace.code[emitCall(ctx, CallKind::kKnown, operands, snap)].deferrable = true;
  return flow;
}

// True for a deque that has escaped. The trace no longer follows its items.
bool isEscapedDeque(const Virtual& v) {
  return v.kind == VirtualKind::kOpaque && v.object && pyapi::isA(v.object.get(), pyapi::Known::kDeque);
}

// Objects that were handed to unknown code are treated like older objects from now on: their parts are read
// again, under guards.
void Steps::forgetEscaped(CallValues& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (torchapi::isTensor(ctx.args.any(i))) {
      if (auto value = ops_.valueOf(ctx.args.any(i))) roles_.sizes.forgetMeta(*value);
    }
  }
  forgetEscapedObjects();
}

void Steps::forgetEscapedObjects() {
  for (Virtual* v : virtuals_.held()) {
    const bool dropped = v->kind != VirtualKind::kClass;  // the collector drops a class, at any time
    if (v->value != ir::kNone && dropped && v->object && isWeaklyReferenced(v->object.get())) {
      // A replay drops the object after this step. The program may drop it later, and a weak reference would
      // tell the difference.
      roles_.breaks.abort(diag::Code::KTG0302,
                          {std::string(pyapi::typeNameOf(v->object.get())) + " (weakly referenced)"});
      return;
    }
    bool mutableKind = v->kind == VirtualKind::kList || v->kind == VirtualKind::kDict ||
                       v->kind == VirtualKind::kSet || v->kind == VirtualKind::kInstance ||
                       v->kind == VirtualKind::kCell || isEscapedDeque(*v);
    const bool attributed = v->kind == VirtualKind::kFunction || v->kind == VirtualKind::kClass;
    if (v->value != ir::kNone && attributed) v->exposed = true;
    if (v->value == ir::kNone || !mutableKind) continue;
    v->kind = VirtualKind::kOpaque;
    v->forgotten = true;
    virtuals_.forgetIdentity(*v);
  }
  overlays_.clear();
}

Flow Steps::replaceCall(CallValues& ctx, pyapi::Ref<> result) {
  instruction_.setExecuted(true);
  ctx.act.kwnames = nullptr;
  if (!result) return Flow::kRaise;
  for (size_t i = 0; i < ctx.popped; ++i) {
    PyObject* gone = *--ctx.act.sp;
    Py_XDECREF(gone);
  }
  *ctx.act.sp++ = result.release();
  return Flow::kNext;
}

// Makes the operands of a call without any side effect on the recording, since the call may not be written at
// all.
bool Steps::quietOperands(CallValues& ctx, std::vector<Operand>& operands) {
  Operand operand;
  if (!roles_.snapshots.operandOf(ctx.callableShadow, ctx.callable, operand)) return false;
  operands.push_back(operand);
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!roles_.snapshots.operandOf(ctx.shadows.any(i), ctx.args.any(i), operand)) return false;
    operands.push_back(operand);
  }
  return true;
}

Flow Steps::execute(Activation& act, const Instr& instr) {
  if (breakLog_.isToBeRaised()) return roles_.errors.raiseRefused();
  instruction_.setExecuted(true);
  const Flow flow = act.execute(instr);
  instruction_.setFlow(flow);
  return flow;
}

CallKind Steps::stepKind(PyObject* object) {
  if (torchapi::isTensor(object) || !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE))
    return CallKind::kKnown;
  return CallKind::kOpaque;
}

}  // namespace kintsugi::capture
