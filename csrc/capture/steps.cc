// Recorder: writing instructions: in-line guards, opaque and modelled calls, torch operations.
#include <algorithm>
#include <string_view>

#include "capture/aliases.h"
#include "capture/breaks.h"
#include "capture/calls/model.h"
#include "capture/calls/numpy.h"
#include "capture/calls/open_lists.h"
#include "capture/class_attributes.h"
#include "capture/exceptions.h"
#include "capture/finalizer_tracker.h"
#include "capture/foreign.h"
#include "capture/locals_watch.h"
#include "capture/numbers.h"
#include "capture/recorder.h"
#include "capture/sizes.h"
#include "capture/tables/pauses.h"
#include "pyapi/callable_name.h"
#include "pyapi/code.h"
#include "pyapi/generator.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/opcodes.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/op_effects.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

using ir::Op;
using ir::Operand;
using ir::Type;
using ir::TypeKind;

size_t Recorder::emit(Op op, const std::vector<Operand>& operands, const std::vector<Type>& results,
                      ir::StateId snap) {
  if ((ir::opInfo(op).flags & ir::kRaise) != 0 && snap != ir::kNone) checkHandlers(snap);
  for (const Operand& operand : operands) {
    if (operand.kind != ir::OperandKind::kRecipe || !runningRecipes_.contains(operand.id)) continue;
    abort(diag::Code::KTG0302, {"generator that runs"});  // it can't be made before its frame is
  }
  const size_t at = document_.trace.append(op, operands, results, snap);
  if (op == Op::kCall || op == Op::kCallKnown) {
    states_.noteCall(document_.trace.code[at].firstResult);
  }
  return at;
}

// What raises in a frame that can't be made again is raised in the first one outside that can
// (runtime/replay.cc): handlers in between would be passed over.
void Recorder::checkHandlers(ir::StateId snap) {
  const bool transform = Transforms::isInside(*this);
  for (ShadowFrame* frame = frames_.current(); frame != nullptr; frame = frame->caller) {
    if (snap == ir::kNone || document_.trace.states[snap].rebuildable) return;
    snap = document_.trace.states[snap].parent;
    // Torch's own would only leave the transform, which a replay never enters.
    if (frame->transform || (transform && leavesTransforms(frame->code))) continue;
    const pyapi::Handler handler = pyapi::findHandler(frame->code, frame->act->pc - 1);
    // A clean-up that the compiler made begins with something else.
    if (handler.target < 0 || CodeInfo::of(frame->code)->at(handler.target).op != op::PUSH_EXC_INFO) continue;
    abort(diag::Code::KTG0103, {"an operation that may raise, under a handler"});
    return;
  }
}

bool Recorder::guardTruth(ir::ValueId value, bool truth) {
  ir::StateId snap = stateBefore();
  if (!document_.trace.states[snap].rebuildable) {
    abort(diag::Code::KTG0103, {"a branch on a value known only at run time"});
    return false;
  }
  emit(truth ? Op::kGuardTrue : Op::kGuardFalse, {Operand::value(value)}, {}, snap);
  return true;
}

bool Recorder::guardScalar(ir::ValueId value, PyObject* number) {
  if (document_.trace.values[value].kind == TypeKind::kObject) {
    abort(diag::Code::KTG0302, {pyapi::typeNameOf(number)});
    return false;
  }
  ir::StateId snap = stateBefore();
  if (!document_.trace.states[snap].rebuildable) {
    abort(diag::Code::KTG0103, {"a number known only at run time"});
    return false;
  }
  if (!torchCalls_.pinNumber(value)) return true;
  Operand expected;
  if (PyBool_Check(number)) {
    expected = Operand::boolean(number == Py_True);
  } else if (PyLong_Check(number)) {
    expected = Operand::integer(PyLong_AsLongLong(number));
  } else {
    expected = Operand::number(PyFloat_AsDouble(number));
  }
  emit(Op::kGuardValue, {Operand::value(value), expected}, {}, snap);
  return true;
}

bool Recorder::pinAnswer(const char* function, const std::vector<Operand>& args, PyObject* answer) {
  static constinit pyapi::Lazy<PyObject*> moduleSlot;
  PyObject* module = moduleSlot.get([] { return pyapi::importModule("_operator"); });
  pyapi::Ref<> callable = pyapi::steal(PyObject_GetAttrString(module, function));
  return pinAnswerOf(callable.get(), args, answer);
}

bool Recorder::pinAnswerOf(PyObject* callable, const std::vector<Operand>& args, PyObject* answer) {
  if (instruction_.isExecuted()) {  // too late for a snapshot
    abort(diag::Code::KTG0103, {"what " + pyapi::callableName(callable) + "() says"});
    return false;
  }
  std::vector<Operand> operands = {Operand::constant(constId(callable))};
  operands.insert(operands.end(), args.begin(), args.end());
  size_t at = emit(Op::kCallKnown, operands, {{TypeKind::kObject, ir::kNone}}, stateBefore());
  blocks_.next();
  Shadow said =
      readSource(guard::SourceKind::kValue, ir::kNone, nullptr, document_.trace.code[at].firstResult, answer);
  if (!pin(said, answer)) return false;
  flushBlock();
  return live();
}

// The guards on what an opaque step returned or may have changed run right after it, with the state in which
// the next instruction begins.
void Recorder::flushBlock() {
  blocks_.setPending(false);
  ir::StateId snap = stateBefore();
  emit(Op::kGuardBlock, {Operand::integer(blocks_.newest())}, {}, snap);
  if (!aliases_.empty()) settleAliases(*this);
}

void Recorder::stale() {
  blocks_.markStale();
  sizeReads_.forgetAll();
  frozen_.thaw();
  guard::Guard state{guard::GuardKind::kGlobalState, blocks_.newest(), ir::kNone, ir::kNone, ir::kNone, 0};
  state.number = states_.add(torchapi::GlobalState::current());
  document_.guards.guards.push_back(state);
}

// A block that checks something needs a snapshot that can be rebuilt.
void Recorder::checkBlocks() {
  std::vector<bool> guarded(blocks_.newest() + 1, false);
  for (const guard::Guard& g : document_.guards.guards) guarded[g.block] = true;
  for (const guard::SourceNode& node : document_.sources.nodes) {
    if (node.kind != guard::SourceKind::kValue) guarded[node.block] = true;
  }
  for (const ir::Instruction& ins : document_.trace.code) {
    if (ins.op != Op::kGuardBlock) continue;
    auto block = static_cast<size_t>(document_.trace.operandsOf(ins)[0].i);
    if (!guarded[block] || document_.trace.states[ins.snap].rebuildable) continue;
    ir::ConstId code = document_.trace.states[ins.snap].code;
    auto* where = reinterpret_cast<PyCodeObject*>(constants_.at(code));
    abort(diag::Code::KTG0103,
          {std::string("after a step in ") + PyUnicode_AsUTF8(pyapi::qualifiedNameOf(where))});
    breaks_.setFailedIn(document_.trace.states[ins.snap].parent == ir::kNone ? nullptr : constants_.at(code));
    return;
  }
}

namespace {

// A function of Python's that C code may be given to call.
bool isPythonCode(PyObject* object) {
  if (PyMethod_Check(object)) object = PyMethod_GET_FUNCTION(object);
  return PyFunction_Check(object);
}

// How often the tensors among some arguments have been written to.
std::vector<uint64_t> versionsOf(const std::vector<PyObject*>& args) {
  std::vector<uint64_t> versions;
  for (PyObject* arg : args) {
    uint64_t version = 0;
    if (torchapi::isTensor(arg)) torchapi::tensorVersion(torchapi::tensorImplOf(arg), version);
    versions.push_back(version);
  }
  return versions;
}

}  // namespace

// Does a container made here hold others that can change? They must stay one object for everybody.
bool Recorder::holdsMutable(Shadow shadow) {
  Virtual& v = virtualOf(shadow);
  auto isMutable = [&](Shadow part) {
    return part.isVirtual() && virtualOf(part).kind != VirtualKind::kTuple &&
           virtualOf(part).kind != VirtualKind::kSlice && virtualOf(part).kind != VirtualKind::kRange &&
           virtualOf(part).kind != VirtualKind::kMethod;
  };
  if (v.kind == VirtualKind::kTuple || v.kind == VirtualKind::kList || v.kind == VirtualKind::kSet) {
    for (Shadow part : v.parts) {
      if (isMutable(part) || (part.isVirtual() && holdsMutable(part))) return true;
    }
  }
  if (v.kind == VirtualKind::kDict && v.entries) {
    PyObject *key, *encoded;
    Py_ssize_t at = 0;
    while (PyDict_Next(v.entries.get(), &at, &key, &encoded)) {
      if (isMutable(decodeShadow(encoded))) return true;
    }
  }
  return false;
}

bool Recorder::callOperands(CallContext& ctx, CallKind kind, std::vector<Operand>& operands) {
  Operand callee;
  Shadow callable = ctx.callableShadow;
  if (kind == CallKind::kOpaque && !escapeHandled(*this)) return false;
  if (callable.isSource() && !comesFromStep(callable) && !pin(callable, ctx.callable)) return false;
  if (kind == CallKind::kOpaque && callable.isVirtual() && !escape(callable, ctx.callable)) return false;
  if (!operandOf(callable, ctx.callable, callee)) {
    abort(diag::Code::KTG0302, {pyapi::callableName(ctx.callable)});
    return false;
  }
  operands.push_back(callee);
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow shadow = ctx.shadows.any(i);
    if (torchapi::isTensor(ctx.args.any(i)) && !isForeign(shadow, ctx.args.any(i)))
      shadow = tensorShadow(ctx.args.any(i), shadow);
    // An instance has an identity, which the step may see or keep; plain containers are looked at.
    bool identity = shadow.isVirtual() && (virtualOf(shadow).kind == VirtualKind::kInstance ||
                                           virtualOf(shadow).kind == VirtualKind::kClass ||
                                           virtualOf(shadow).kind == VirtualKind::kFunction ||
                                           isConsumed(virtualOf(shadow)) || holdsMutable(shadow));
    if ((kind == CallKind::kOpaque || identity) && !escape(shadow, ctx.args.any(i))) return false;
    Operand operand;
    if (!live() || !operandOf(shadow, ctx.args.any(i), operand)) {
      abort(diag::Code::KTG0302, {pyapi::typeNameOf(ctx.args.any(i))});
      return false;
    }
    operands.push_back(operand);
  }
  return true;
}

size_t Recorder::emitCall(CallContext& ctx, CallKind kind, const std::vector<Operand>& operands,
                          ir::StateId snap) {
  const Op op =
      kind == CallKind::kOpaque ? Op::kCall : kind == CallKind::kKnown ? Op::kCallKnown : Op::kCallPure;
  const size_t at = emit(op, operands, {{TypeKind::kObject, ir::kNone}}, snap);
  if (ctx.kwnames != nullptr) {
    std::vector<Operand> names;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ctx.kwnames); ++i) {
      names.push_back(document_.trace.stringOperand(PyUnicode_AsUTF8(PyTuple_GET_ITEM(ctx.kwnames, i))));
    }
    Operand list = document_.trace.listOperand(names);
    document_.trace.code[at].kwCount = list.count;
    document_.trace.code[at].kwNames = list.id;
  }
  return at;
}

Shadow Recorder::appendCall(CallContext& ctx, CallKind kind, const std::vector<Operand>& operands,
                            ir::StateId snap, PyObject* result) {
  if (blocks_.isPending()) abort(diag::Code::KTG0103, {"a second step of one instruction"});
  const ir::ValueId value = document_.trace.code[emitCall(ctx, kind, operands, snap)].firstResult;
  blocks_.next();
  blocks_.setPending(true);
  if (kind == CallKind::kOpaque) stale();
  finalized_.add(result);
  const bool alone = Py_REFCNT(result) == 1;
  const Shadow shadow = readSource(guard::SourceKind::kValue, ir::kNone, nullptr, value, result);
  if (alone) finalizers_.track(result, shadow);
  return shadow;
}

// May a generator wait on somebody else, who is closed with it?
bool mayDelegate(PyCodeObject* code) {
  const CodeInfo* info = CodeInfo::of(code);
  for (int32_t at = 0; info != nullptr && at < info->size(); at = info->at(at).next) {
    if (info->at(at).op == op::SEND || info->at(at).op == op::SEND_AND_DROP) return true;
  }
  return false;
}

// Nobody else holds it, and code runs where the program drops it, which the trace would do at another moment.
bool runsWhenDropped(PyObject* object) {
  if (Py_REFCNT(object) > 1) return false;
  if (PyGen_CheckExact(object)) {
    PyCodeObject* code = pyapi::codeOf(pyapi::asGenerator(object));
    return pyapi::hasHandlers(code) || mayDelegate(code);
  }
  return !hasTrackedFinalizer(object) && FinalizedObjects::runsPython(object);
}

// A replay drops an object that was handed out behind this step, the program perhaps later: what a weak
// reference to it says would differ. False: the recording has ended.
bool checkWeaklyHeld(Recorder& rec, CallContext& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    const Shadow shadow = ctx.shadows.any(i);
    if (shadow.isSource() && rec.comesFromStep(shadow)) rec.known().finalized_.addPart(ctx.args.any(i));
    if (!shadow.isVirtual()) continue;
    const Virtual& v = rec.virtualOf(ctx.shadows.any(i));
    if (v.kind != VirtualKind::kInstance || v.value == ir::kNone || !isWeaklyReferenced(ctx.args.any(i)))
      continue;
    rec.abort(diag::Code::KTG0302,
              {std::string(pyapi::typeNameOf(ctx.args.any(i))) + " (weakly referenced)"});
    return false;
  }
  return true;
}

Flow Recorder::callStep(CallContext& ctx, CallKind kind, const char* reason, Shadow& result) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < ctx.total(); ++i) {  // asked for its items, it calls its function
    if (ctx.shadows.any(i).isVirtual() && virtualOf(ctx.shadows.any(i)).kind == VirtualKind::kMap) {
      kind = CallKind::kOpaque;
      reason = "";
    }
  }
  finalized_.freeForStep();
  if (!callOperands(ctx, kind, operands)) return execute(ctx.act, ctx.instr);
  ir::StateId snap = stateBefore();
  std::vector<pyapi::Ref<>> alive;  // the instruction consumes its arguments
  for (size_t i = 0; i < ctx.total(); ++i) alive.push_back(pyapi::newRef(ctx.args.any(i)));
  std::vector<PyObject*> args(ctx.args.begin(), ctx.args.end());
  ctx.args.replace(args.data());
  if (kind == CallKind::kOpaque && reason != nullptr)
    noteBreak(diag::Code::KTG0101, {pyapi::callableName(ctx.callable)});
  const std::vector<uint64_t> versions = versionsOf(args);
  Flow flow;
  pauses_.expectNoCalls();
  if (kind == CallKind::kOpaque) classVersions_.expectWrites();
  const bool held = kind == CallKind::kOpaque && !finalizers_.empty();
  if (held && !finalizers_.release()) return execute(ctx.act, ctx.instr);
  const LocalsWatch watch(*this);
  {
    const Paused paused(pauses_);
    flow = execute(ctx.act, ctx.instr);
  }
  if (live() && watch.changed())
    abort(diag::Code::KTG0303, {"a variable of a frame that was set through f_locals"});
  if (held) finalizers_.reclaim();
  if (held && !live()) return flow;
  if (flow == Flow::kRaise) {
    exceptions_.setUnsafe(
        !recordRaised(ctx, kind == CallKind::kPure ? CallKind::kKnown : kind, operands, snap));
    if (kind == CallKind::kOpaque && live()) forgetEscaped(ctx);
    return flow;
  }
  if (ctx.pushes && runsWhenDropped(ctx.act.peek(ctx.resultDepth))) {
    abort(diag::Code::KTG0302, {pyapi::typeNameOf(ctx.act.peek(ctx.resultDepth))});
    return flow;
  }
  if (kind != CallKind::kOpaque && !checkWeaklyHeld(*this, ctx)) return flow;
  if (kind == CallKind::kOpaque && isStrict() && versionsOf(args) != versions) {
    refuse(diagnosticAt(frames_.current(), diag::Code::KTG0101,
                        {pyapi::callableName(ctx.callable) + ", which writes to a tensor,"}));
  }
  diag::Diagnostic* last = breaks_.last();
  if (pauses_.calledBack() && kind == CallKind::kOpaque && std::ranges::any_of(args, isPythonCode) &&
      last != nullptr && !PyFunction_Check(ctx.callable) && last->code == diag::Code::KTG0101 &&
      last->args[0] == pyapi::callableName(ctx.callable)) {
    last->code = diag::Code::KTG0102;
  }
  // Code of the program's ran in a call that was taken to be C code's alone (a property of a metaclass, a
  // comparison): it may have changed what is known.
  const bool unforeseen = pauses_.calledBack() && kind != CallKind::kOpaque;
  result = appendCall(ctx, kind, operands, snap, ctx.pushes ? ctx.act.peek(ctx.resultDepth) : Py_None);
  if (unforeseen) stale();
  if (unforeseen || kind == CallKind::kOpaque) forgetEscaped(ctx);
  return flow;
}

Flow Recorder::quietCall(CallContext& ctx) {
  std::vector<Operand> operands;
  if (!callOperands(ctx, CallKind::kKnown, operands)) return execute(ctx.act, ctx.instr);
  const ir::StateId snap = stateBefore();
  pauses_.expectNoCalls();
  Flow flow;
  {
    const Paused paused(pauses_);
    flow = execute(ctx.act, ctx.instr);
  }
  if (flow != Flow::kNext || pauses_.calledBack()) {
    abort(diag::Code::KTG0303, {"Python code ran where a result was looked up"});
    return flow;
  }
  if (live()) document_.trace.code[emitCall(ctx, CallKind::kKnown, operands, snap)].deferrable = true;
  return flow;
}

// A deque that has been handed out, whose items are not followed any longer.
bool isKeptDeque(const Virtual& v) {
  return v.kind == VirtualKind::kOpaque && v.object && pyapi::isA(v.object.get(), pyapi::Known::kDeque);
}

// What was handed to unknown code is an old object from now on: its parts are read again, under guards.
void Recorder::forgetEscaped(CallContext& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (torchapi::isTensor(ctx.args.any(i))) {
      if (auto value = ops_.valueOf(ctx.args.any(i))) forgetMeta(*this, *value);
    }
  }
  for (const auto& v : virtuals_.all()) {
    const bool dropped = v->kind != VirtualKind::kClass;  // which the collector finds, whenever it runs
    if (v->value != ir::kNone && !v->forgotten && dropped && v->object &&
        isWeaklyReferenced(v->object.get())) {
      // A replay drops it behind this step, the program perhaps later: what the reference says would differ.
      abort(diag::Code::KTG0302, {std::string(pyapi::typeNameOf(v->object.get())) + " (weakly referenced)"});
      return;
    }
    bool mutableKind = v->kind == VirtualKind::kList || v->kind == VirtualKind::kDict ||
                       v->kind == VirtualKind::kSet || v->kind == VirtualKind::kInstance ||
                       v->kind == VirtualKind::kCell || isKeptDeque(*v);
    const bool attributed = v->kind == VirtualKind::kFunction || v->kind == VirtualKind::kClass;
    if (v->value != ir::kNone && attributed) v->exposed = true;
    if (v->value == ir::kNone || !mutableKind) continue;
    v->kind = VirtualKind::kOpaque;
    v->forgotten = true;
    virtuals_.forgetIdentity(*v);
  }
  overlays_.clear();
}

namespace {

// A replay that gets another number of results has to be able to leave the trace. What writes to tensors may
// change their sizes.
void checkDrained(Recorder& rec, const torchapi::DrainResult& drained, ir::StateId snap) {
  if (drained.mutated) rec.known().sizeReads_.forgetAll();
  if (drained.exits && !rec.trace().states[snap].rebuildable) {
    rec.abort(diag::Code::KTG0103, {"as many tensors as a size says"});
  }
}

// Is it an array, or does it hold one (`x[rows, 0]`)? What matters of it is what type it has.
bool takesArray(Recorder& rec, Shadow shadow, PyObject* object) {
  if (shadow.isSource() && isArray(object)) {
    rec.guardType(shadow, object);
    return true;
  }
  if (!shadow.isVirtual() || !PyTuple_CheckExact(object)) return false;
  const std::vector<Shadow> parts = rec.virtualOf(shadow).parts;
  bool any = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    any = takesArray(rec, parts[i], PyTuple_GET_ITEM(object, static_cast<Py_ssize_t>(i))) || any;
  }
  return any;
}

// The only tensors among the arguments that the trace can't describe are results of functional collectives:
// torch's own code waits for them and computes on the tensors inside.
bool takesCollectives(const CallContext& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    const bool foreign = isForeign(ctx.shadows.any(i), ctx.args.any(i));
    if (foreign && !pyapi::isA(ctx.args.any(i), pyapi::Known::kAsyncCollective)) return false;
  }
  return true;
}

Flow collectiveStep(CallContext& ctx, Shadow& result) {
  std::vector<ir::ValueId> described;
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (isForeign(ctx.shadows.any(i), ctx.args.any(i)))
      ctx.rec.guardType(ctx.shadows.any(i), ctx.args.any(i));
    else if (auto value =
                 torchapi::isTensor(ctx.args.any(i)) ? ctx.rec.ops().valueOf(ctx.args.any(i)) : std::nullopt)
      described.push_back(*value);
  }
  const Flow flow = ctx.rec.callStep(ctx, Recorder::CallKind::kKnown, nullptr, result);
  for (const ir::ValueId value : described) forgetMeta(ctx.rec, value);  // it may have been written to
  return flow;
}

// What gets objects that the trace can't look into is a step.
std::optional<Flow> objectStep(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (takesArray(ctx.rec, ctx.shadows.any(i), ctx.args.any(i)))
      return ctx.rec.callStep(ctx, Recorder::CallKind::kKnown, nullptr, result);
    if (isForeign(ctx.shadows.any(i), ctx.args.any(i)))
      return takesCollectives(ctx) ? collectiveStep(ctx, result)
                                   : ctx.rec.callStep(ctx, Recorder::CallKind::kOpaque, "", result);
    // Any generator of random numbers will do: it is handed to the step, and which one it is decides nothing.
    if (torchapi::isRandomGenerator(ctx.args.any(i)) && ctx.shadows.any(i).isSource()) {
      ctx.rec.guardType(ctx.shadows.any(i), ctx.args.any(i));
      return ctx.rec.callStep(ctx, Recorder::CallKind::kKnown, "", result);
    }
  }
  return std::nullopt;
}

}  // namespace

namespace {

// Does the result follow from more than the operations and the arguments?
bool decidesItself(const CallContext& ctx, const torchapi::DrainResult& drained) {
  const bool python = PyFunction_Check(ctx.callable);
  // Python code may have decided on sizes that no guard covers, for the operations after the first.
  if (python && drained.dynamic && drained.count > 1) return true;
  // A number that it, or C code that is not torch's, makes of one of a tensor's is another one.
  return (python || ctx.pinNumbers) && !drained.scalars.empty();
}

// What a transform hands out without an operator: wrappers, which are known by the tensors inside.
bool isOfTransform(PyObject* object) {
  if (!PyTuple_Check(object)) return torchapi::isWrapper(object);
  bool wrappers = torchapi::transformsActive();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
    PyObject* item = PyTuple_GET_ITEM(object, i);
    wrappers = wrappers && (item == Py_None || torchapi::isTensor(item));
  }
  return wrappers;
}

// Is it to get the numbers themselves? A mode would see operators that make tensors of numbers of the trace.
bool takesNumbers(const CallContext& ctx) {
  return ctx.metaPure || ctx.pinNumbers || PyFunction_Check(ctx.callable) || torchapi::transformsActive() ||
         torchapi::hasModes();
}

}  // namespace

Flow Recorder::executeLogged(CallContext& ctx) {
  torchCalls_.setTainted(false);
  torchCalls_.begin();
  ops_.resume();
  const bool asItIs = torchapi::hasModes();
  const bool other = ctx.instead != nullptr && !asItIs && !torchapi::transformsActive();
  Flow flow = asItIs  ? execute(ctx.act, ctx.instr)
              : other ? replaceCall(ctx, pyapi::steal(ctx.instead(ctx.args[0])))
                      : executeSymbolic(ctx);
  ops_.pause();
  torchCalls_.end();
  return flow;
}

Flow Recorder::torchStep(CallContext& ctx, Shadow& result) {
  if (torchapi::hasFunctionModes()) [[unlikely]]
    return callStep(ctx, CallKind::kOpaque, "", result);
  if (auto flow = objectStep(ctx, result)) return *flow;
  if (auto flow = joinOpenList(ctx, result)) return *flow;
  std::vector<Shadow> pinned(ctx.shadows.begin(), ctx.shadows.end());
  const bool concrete = takesNumbers(ctx);
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!(concrete ? pinDeep(pinned[i], ctx.args.any(i)) : pinForTorch(pinned[i], ctx.args.any(i))))
      return execute(ctx.act, ctx.instr);
  }
  if (!pinHiddenNumbers(ctx, pinned)) return execute(ctx.act, ctx.instr);
  ctx.shadows.replace(pinned.data());
  Shadow callable = ctx.callableShadow;
  if (callable.isSource() && !pin(callable, ctx.callable)) return execute(ctx.act, ctx.instr);
  torchCalls_.setConstantNumbers(ctx.metaPure);
  bool dynamic = false;
  for (size_t i = 0; i < ctx.total(); ++i) {
    const bool isWrapper = torchapi::isTensor(ctx.args.any(i)) && pinned[i].isVirtual();
    if (isWrapper && !hasStaticMeta(pinned[i], ctx.args.any(i))) {
      abort(diag::Code::KTG0109, {"sizes under a transform that are known only at run time"});
      return execute(ctx.act, ctx.instr);
    }
    const bool isValue = torchapi::isTensor(ctx.args.any(i)) && pinned[i].isValue();
    if (isValue && !pinLikely(*this, pinned[i], ctx.args.any(i))) return execute(ctx.act, ctx.instr);
    dynamic = dynamic || (isValue && ops_.level(pinned[i].valueId()) != torchapi::MetaLevel::kFull);
  }
  if (dynamic && ctx.metaPure) {
    if (auto flow = readSizes(ctx, result)) return *flow;
  }
  for (size_t i = 0; dynamic && i < ctx.total(); ++i) {
    if (torchapi::isTensor(ctx.args.any(i)) && pinned[i].isValue() &&
        !pinForBinding(ctx, pinned[i], ctx.args.any(i)))
      return execute(ctx.act, ctx.instr);
  }
  ctx.veilSlices = dynamic && decidesOnSlices(ctx);
  ir::StateId snap = stateBefore();
  // The operands of the fallback must be taken before the call: it may consume the arguments.
  CallContext fallback = ctx;
  fallback.callableShadow = callable;
  std::vector<Operand> operands;
  const bool haveOperands = quietOperands(fallback, operands);
  Flow flow = executeLogged(ctx);
  const CallKind kind =
      torchCalls_.isTainted() ? CallKind::kOpaque : CallKind::kKnown;  // where it has to be a call
  if (flow == Flow::kRaise) {
    ops_.discard();
    exceptions_.setUnsafe(!haveOperands || !recordRaised(fallback, kind, operands, snap));
    return flow;
  }
  PyObject* object = ctx.pushes ? ctx.act.peek(ctx.resultDepth) : Py_None;
  std::string detail;
  if (!torchCalls_.isTainted()) {
    const torchapi::DrainResult drained = ops_.drain(document_.trace, snap);
    if (drained.detail != nullptr) detail = std::string(" by ") + drained.detail;
    checkDrained(*this, drained, snap);
    if (drained.status == torchapi::DrainResult::kOk) {
      std::optional<Shadow> shadow;
      if (!decidesItself(ctx, drained))
        shadow = ctx.pushes ? adoptResult(object, drained) : Shadow::constant();
      if (shadow && drained.count == 0 && !ctx.metaPure && !shadow->isValue() && !isOfTransform(object))
        shadow = std::nullopt;
      if (shadow && scalarsExplained(object, drained)) {
        result = *shadow;
        return flow;
      }
      undo(drained);
    }
  }
  ops_.discard();
  if (!haveOperands) {
    abort(diag::Code::KTG0301, {pyapi::callableName(ctx.callable) + detail});
    return flow;
  }
  result = appendCall(fallback, kind, operands, snap, object);
  return flow;
}

std::optional<Shadow> Recorder::torchOperation(ir::StateId snap, pyapi::Ref<>& result,
                                               const std::function<PyObject*()>& operation) {
  torchCalls_.setTainted(false);
  torchCalls_.setConstantNumbers(false);
  torchCalls_.begin();
  ops_.resume();
  result = pyapi::steal(operation());
  ops_.pause();
  torchCalls_.end();
  if (!result) {
    ops_.discard();
    exceptions_.setUnsafe(true);
    return std::nullopt;
  }
  torchapi::DrainResult drained;
  if (!torchCalls_.isTainted()) drained = ops_.drain(document_.trace, snap);
  checkDrained(*this, drained, snap);
  bool recorded =
      !torchCalls_.isTainted() && drained.status == torchapi::DrainResult::kOk && drained.count > 0;
  auto shadow = recorded ? adoptResult(result.get(), drained) : std::nullopt;
  if (shadow && scalarsExplained(result.get(), drained)) return shadow;
  abort(diag::Code::KTG0301, {"an operation of C code"});
  return Shadow::constant();
}

Flow Recorder::replaceCall(CallContext& ctx, pyapi::Ref<> result) {
  instruction_.setExecuted(true);
  if (!result) return Flow::kRaise;
  for (size_t i = 0; i < ctx.popped; ++i) {
    PyObject* gone = *--ctx.act.sp;
    Py_XDECREF(gone);
  }
  *ctx.act.sp++ = result.release();
  ctx.act.kwnames = nullptr;
  return Flow::kNext;
}

// a, b = tensor: the instruction pushes `pushed` tensors that it made; with a star, the last but `behind` of
// them as a list.
Flow Recorder::torchSequence(Activation& act, const Instr& instr, int pushed, int behind) {
  ShadowFrame& frame = *frames_.current();
  PyObject* object = act.peek(1);
  frame.top() = tensorShadow(object, frame.top());
  if (!live() || !pinMeta(*this, frame.top(), object)) return execute(act, instr);
  ir::StateId snap = stateBefore();
  torchCalls_.setTainted(false);
  torchCalls_.begin();
  ops_.resume();
  Flow flow = execute(act, instr);
  ops_.pause();
  torchCalls_.end();
  if (flow != Flow::kNext || torchCalls_.isTainted()) {
    ops_.discard();
    exceptions_.setUnsafe(true);
    if (flow == Flow::kNext) abort(diag::Code::KTG0301, {"unpacking under a mode"});
    return flow;
  }
  torchapi::DrainResult drained = ops_.drain(document_.trace, snap);
  checkDrained(*this, drained, snap);
  frame.drop(1);
  auto shadowOf = [&](PyObject* tensor) {
    auto value = drained.status == torchapi::DrainResult::kOk ? ops_.valueOf(tensor) : std::nullopt;
    if (!value) abort(diag::Code::KTG0301, {"unpacking"});
    return value ? Shadow::value(*value) : Shadow::constant();
  };
  int depth = behind < 0 ? pushed : pushed + 1 + behind;
  for (int i = depth; i >= 1; --i) {
    PyObject* item = act.peek(i);
    if (behind < 0 || i != pushed + 1) {
      frame.push(shadowOf(item));
      continue;
    }
    Shadow list = newVirtual(VirtualKind::kList, item);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(item); ++k) {
      virtualOf(list).parts.push_back(shadowOf(PyList_GET_ITEM(item, k)));
    }
    frame.push(list);
  }
  return flow;
}

// The operands of a call without side effects on the recording: used when the call may not need them.
bool Recorder::quietOperands(CallContext& ctx, std::vector<Operand>& operands) {
  Operand operand;
  if (!operandOf(ctx.callableShadow, ctx.callable, operand)) return false;
  operands.push_back(operand);
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!operandOf(ctx.shadows.any(i), ctx.args.any(i), operand)) return false;
    operands.push_back(operand);
  }
  return true;
}

// Numbers that a torch call read from tensors must be its result and nothing else; what they decided inside
// is hidden.
bool Recorder::scalarsExplained(PyObject* result, const torchapi::DrainResult& drained) {
  if (drained.scalars.empty()) return true;
  return drained.scalars.size() == 1 && (PyLong_Check(result) || PyFloat_Check(result));
}

// Do the sizes of a tensor follow from guarded metadata? Those of a wrapper from the tensor inside.
bool Recorder::hasStaticMeta(Shadow shadow, PyObject* tensor) const {
  auto value =
      shadow.isValue() ? std::optional(shadow.valueId()) : ops_.valueOf(torchapi::innermost(tensor).get());
  return value && ops_.level(*value) == torchapi::MetaLevel::kFull;
}

// Takes the instructions of the last drain back out of the trace.
void Recorder::undo(const torchapi::DrainResult& drained) {
  auto& code = document_.trace.code;
  for (size_t i = 0; i < drained.count; ++i) {
    ir::Instruction& ins = code[code.size() - 1 - i];
    for (uint32_t r = 0; r < ins.resultCount; ++r) ops_.forget(ins.firstResult + r);
  }
  code.resize(code.size() - drained.count);
}

std::optional<Shadow> Recorder::adoptResult(PyObject* result, const torchapi::DrainResult& drained) {
  if (result == Py_None || PyType_Check(result)) return Shadow::constant();
  if (torchapi::isTensor(result)) {
    if (!torchapi::isWrapper(result) && !torchapi::isExactTensorType(Py_TYPE(result)))
      return std::nullopt;                                    // operators make plain tensors
    if (torchapi::isZeroTensor(result)) return std::nullopt;  // whose memory a trace would make
    if (auto value = ops_.valueOf(result)) return Shadow::value(*value);
    if (!torchapi::isWrapper(result) || !ops_.valueOf(torchapi::innermost(result).get())) return std::nullopt;
    if (auto known = knownObject(result)) return known;
    return newVirtual(VirtualKind::kOpaque, result);
  }
  if (PyLong_Check(result) || PyFloat_Check(result)) {
    for (const auto& scalar : drained.scalars) {
      bool isBool = PyBool_Check(result);
      if (isBool && scalar.kind == TypeKind::kBool && (result == Py_True) == (scalar.i != 0)) {
        return Shadow::value(scalar.value);
      }
      if (!isBool && PyLong_Check(result) && scalar.kind == TypeKind::kInt &&
          PyLong_AsLongLong(result) == scalar.i) {
        return Shadow::value(scalar.value);
      }
      if (PyFloat_Check(result) && scalar.kind == TypeKind::kFloat) return Shadow::value(scalar.value);
    }
    PyErr_Clear();
    return drained.scalars.empty() && torchCalls_.givesConstantNumbers()
               ? std::optional<Shadow>(Shadow::constant())
               : std::nullopt;
  }
  if (PyTuple_Check(result) || PyList_CheckExact(result)) {
    std::vector<Shadow> parts;
    for (Py_ssize_t i = 0; i < Py_SIZE(result); ++i) {
      auto part = adoptResult(
          PyTuple_Check(result) ? PyTuple_GET_ITEM(result, i) : PyList_GET_ITEM(result, i), drained);
      if (!part) return std::nullopt;
      parts.push_back(*part);
    }
    if (PyTuple_Check(result)) {
      if (isPlainTuple(result)) return Shadow::constant();  // torch.Size and the like
      return tupleOf(result, std::move(parts));
    }
    Shadow list = newVirtual(VirtualKind::kList, result);
    virtualOf(list).parts = std::move(parts);
    return list;
  }
  if (auto known = knownObject(result)) return known;
  if (PyUnicode_CheckExact(result) || pyapi::isTorchConstant(result)) return Shadow::constant();
  return std::nullopt;
}

}  // namespace kintsugi::capture
