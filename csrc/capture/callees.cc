// Callees: Python frames are announced, entered, and their parameters bound. For generators see
// callees_generators.cc.
#include "capture/callees.h"

#include "capture/plain_objects.h"
#include "capture/stand_ins.h"
#include "pyapi/code.h"
#include "pyapi/containers.h"
#include "pyapi/frame.h"
#include "pyapi/generator.h"
#include "pyapi/known_objects.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

bool Callees::acceptFrame(Activation& act) {
  PendingFrame& pending = expected_.pending();
  if (pyapi::ownedByGenerator(act.frame)) {
    auto* generator = reinterpret_cast<PyObject*>(pyapi::generatorOf(act.frame));
    if (watched_.isClosing()) {  // closing one may close others, which it delegates to or holds
      Virtual* made = virtuals_.findObject(generator);
      return made != nullptr && resumeGenerator(act, *made);
    }
    if (Virtual* collected = expected_.collected(); collected && collected->object.get() == generator)
      return resumeGenerator(act, *collected);
    if (!pending.active || pending.generator == nullptr || pending.generator->object.get() != generator)
      return false;
    return resumeGenerator(act, *pending.generator);
  }
  auto* code = pyapi::codeOf(act.frame);
  if (!pending.active || pending.generator != nullptr || reinterpret_cast<PyObject*>(code) != pending.code)
    return false;
  auto frame = std::make_unique<ShadowFrame>();
  frame->act = &act;
  frame->caller = frames_.current();
  frame->code = code;
  frame->function = pyapi::newRef(reinterpret_cast<PyObject*>(pyapi::functionOf(act.frame)));
  frame->functionShadow = pending.functionShadow;
  frame->site = std::move(pending.site);
  frame->pinResult = pending.pinResult;
  frame->rebuildable =
      pending.rebuildable && (frames_.current() == nullptr || frames_.current()->rebuildable);
  if (!bindArguments(*frame, act, pending)) return false;
  if (!finalizers_.empty() && frames_.current() != nullptr)
    finalizers_.transferToCallee(*frames_.current(), code);
  act.observerData = frame.get();
  expected_.entered(frames_.enter(std::move(frame)));
  return true;
}

// `__init__` begins. `self` was just made by the constructor, or by a `__new__` in Python.
void Callees::bindNewSelf(ShadowFrame& frame, PyObject* self, PendingFrame& pending) {
  pending.args[0] = self;
  const auto known = roles_.known.knownObject(self);
  const bool raised = PyExceptionInstance_Check(self);
  const VirtualKind kind = raised ? VirtualKind::kException : VirtualKind::kInstance;
  pending.shadows[0] = known ? *known : roles_.known.newVirtual(kind, self);
  Virtual* exception = raised && !known ? &virtuals_[pending.shadows[0]] : nullptr;
  // BaseException.__new__ keeps its arguments in `args`.
  for (size_t i = 1; exception != nullptr && i < pending.positional; ++i) {
    exception->parts.push_back(pending.shadows[i]);
    exception->partObjects.push_back(pyapi::newRef(pending.args[i]));
  }
  frame.site.replacement = pending.shadows[0];
  frame.site.replacementObject = pyapi::newRef(self);
}

// Finds the shadow of each parameter by looking at how CPython has just bound the arguments.
bool Callees::bindArguments(ShadowFrame& frame, Activation& act, PendingFrame& pending) {
  PyCodeObject* code = frame.code;
  const auto local = [&act](int index) { return pyapi::localAt(act.frame, index); };
  frame.locals.assign(pyapi::localsPlusCount(code), Shadow::null());
  frame.stack.reserve(pyapi::stackCapacity(code));
  int parameters = pyapi::argumentCount(code) + pyapi::keywordOnlyCount(code);
  if (pending.selfIsNew && !pending.args.empty() && pending.args[0] == nullptr)
    bindNewSelf(frame, local(0), pending);
  uint64_t usedBits = 0;  // one bit per argument, if there are at most 64
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
    Shadows rest;
    for (size_t i = pyapi::argumentCount(code); i < pending.positional; ++i) {
      rest.push_back(pending.shadows[i]);
      use(i);
    }
    frame.locals[next] = roles_.objects.tupleOf(local(next), std::move(rest));
    ++next;
  }
  if (pyapi::flagsOf(code) & CO_VARKEYWORDS) {
    Shadow dict = roles_.known.newVirtual(VirtualKind::kDict, local(next));
    for (Py_ssize_t k = 0; pending.kwnames && k < PyTuple_GET_SIZE(pending.kwnames); ++k) {
      size_t at = pending.positional + k;
      if (!isUsed(at))
        virtuals_.setEntry(virtuals_[dict], PyTuple_GET_ITEM(pending.kwnames, k), pending.shadows[at]);
      use(at);
    }
    frame.locals[next] = dict;
  }
  for (size_t i = 0; i < pending.args.size(); ++i) {
    if (!isUsed(i)) return false;
  }
  return true;
}

// A parameter that the call did not pass: its value is read from the function's defaults, under guards.
std::optional<Shadow> Callees::defaultOf(PyObject* function, Shadow shadow, int parameter, PyObject* object) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  if (shadow.isVirtual()) {
    Virtual& v = virtuals_[shadow];
    if (parameter < pyapi::argumentCount(code)) {
      if (v.parts.empty() || v.partObjects.empty() || !v.partObjects[0]) return std::nullopt;
      PyObject* defaults = v.partObjects[0].get();
      Py_ssize_t at = parameter - (pyapi::argumentCount(code) - PyTuple_GET_SIZE(defaults));
      return roles_.objects.elementOf(v.parts[0], defaults, at);
    }
    if (v.partObjects.size() < 2 || !v.partObjects[1]) return std::nullopt;
    return roles_.reads.dictEntry(v.parts[1], v.partObjects[1].get(), pyapi::variableName(code, parameter),
                                  object);
  }
  ir::SourceId source = roles_.guards.sourceOf(shadow, function);
  if (parameter < pyapi::argumentCount(code)) {
    PyObject* defaults = PyFunction_GET_DEFAULTS(function);
    if (defaults == nullptr) return std::nullopt;
    Py_ssize_t at = parameter - (pyapi::argumentCount(code) - PyTuple_GET_SIZE(defaults));
    Shadow tuple = roles_.guards.readSource(guard::SourceKind::kDefaults, source, nullptr, 0, defaults);
    if (!tuple.isSource()) return roles_.objects.elementOf(tuple, defaults, at);  // made by the trace
    if (roles_.functions.isArgument(shadow)) {
      roles_.containers.guardLength(tuple, defaults, PyTuple_GET_SIZE(defaults));
    } else {
      roles_.guards.guard(guard::GuardKind::kIs, tuple.sourceId(), roles_.guards.constId(defaults));
    }
    if (isPlain(object) && !roles_.functions.isArgument(shadow)) return Shadow::constant();
    return roles_.guards.readSource(guard::SourceKind::kTupleItem, tuple.sourceId(), nullptr, at, object);
  }
  PyObject* defaults = PyFunction_GET_KW_DEFAULTS(function);
  if (defaults == nullptr) return std::nullopt;
  Shadow dict = roles_.guards.readSource(guard::SourceKind::kKwDefaults, source, nullptr, 0, defaults);
  PyObject* name = pyapi::variableName(code, parameter);
  if (!dict.isSource()) return roles_.reads.dictEntry(dict, defaults, name, object);
  return roles_.guards.readSource(guard::SourceKind::kDictItem, dict.sourceId(), name, 0, object);
}

void Callees::expectFrame(PendingFrame pending) {
  pending.functionShadow = virtuals_.shadowOf(pending.functionShadow, pending.function.get());
  for (size_t i = 0; i < pending.args.size(); ++i)
    pending.shadows[i] = virtuals_.shadowOf(pending.shadows[i], pending.args[i]);
  expected_.expect(std::move(pending), frames_.current());
}

bool Callees::isOpaqueCode(PyObject* code) const {
  return options_.opaqueCodes && options_.opaqueCodes->contains(code);
}

// The result of the frame that was announced. If CPython never entered that frame, the recording ends.
Shadow Callees::returned() {
  if (!expected_.result().isNull()) return expected_.result();
  roles_.breaks.abort(diag::Code::KTG0102, {"a function whose frame was not seen"});
  return Shadow::constant();
}

PendingFrame Callees::methodFrame(PyObject* function, Shadow self, PyObject* object) {
  PendingFrame pending;
  pending.code = PyFunction_GET_CODE(function);
  pending.function = pyapi::newRef(function);
  pending.functionShadow = Shadow::constant();
  pending.args = {object};
  pending.shadows = {self};
  pending.positional = 1;
  roles_.functions.pinFunction(function);
  return pending;
}

bool Callees::recordReturn(ShadowFrame& frame, Shadow shadow, PyObject* object) {
  if (frame.pinResult && !shadow.isConst() && !roles_.values.tryPinDeep(shadow, object))
    return roles_.breaks.isLive();
  expected_.setResult(frame.pinResult ? Shadow::constant() : shadow);
  if (frame.caller != nullptr) return true;
  shadow = expected_.result();
  shadow = roles_.guards.valueOfTensor(shadow, object);
  ir::Operand operand;
  if (!roles_.breaks.isLive() || holdsStandIn(virtuals_, shadow) ||
      !roles_.snapshots.operandOf(shadow, object, operand)) {
    roles_.breaks.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  roles_.writer.emit(ir::Op::kRet, {operand}, {}, roles_.snapshots.stateBefore());
  return true;
}

// The consumer of a generator that the trace has made is about to take all of its items.
void Callees::expectItems(Shadow generator) { expected_.collectFrom(virtuals_[generator]); }

Shadows Callees::takeItems() { return expected_.takeItems(); }

// super() without arguments: the class is in the free variable `__class__`, the object is the first local.
void Callees::superArguments(ShadowFrame& frame, PyObject*& type, PyObject*& self, Shadow& selfShadow) {
  PyCodeObject* code = frame.code;
  pyapi::Frame* running = frame.act->frame;
  if (pyapi::argumentCount(code) == 0 || pyapi::localAt(running, 0) == nullptr) return;
  self = pyapi::localAt(running, 0);
  selfShadow = frame.locals[0];
  if (PyCell_Check(self) && selfShadow.isVirtual() && virtuals_[selfShadow].kind == VirtualKind::kCell) {
    self = PyCell_GET(self);
    selfShadow = virtuals_[selfShadow].parts[0];
  }
  for (int i = pyapi::firstFreeVariable(code); i < pyapi::localsPlusCount(code); ++i) {
    PyObject* name = pyapi::variableName(code, i);
    PyObject* cell = pyapi::localAt(running, i);
    if (PyUnicode_CompareWithASCIIString(name, "__class__") != 0 || cell == nullptr) continue;
    type = PyCell_GET(cell);
    // The cell belongs to the function, which is pinned. Its content, the class, is pinned here.
    if (frame.locals[i].isSource() && type != nullptr) {
      Shadow content =
          roles_.guards.readSource(guard::SourceKind::kCell, frame.locals[i].sourceId(), nullptr, 0, type);
      roles_.guards.pin(content, type);
    }
  }
}

bool Callees::answersCompiling(PyObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return pyapi::isKnownCode(code, torchapi::CodeFamily::kAnswersCompiling) ||
         pyapi::isKnownCode(code, pyapi::CodeFamily::kSaysRecording);
}

Flow Callees::answerCompiling(CallContext& ctx, Shadow& result) {
  Flow flow;
  {
    const Paused paused(pauses_);
    flow = roles_.runner.execute(ctx.act, ctx.instr);
  }
  // torch's own code leaves things out for a compiler, and torch's own compiler makes up for them later:
  // torch.optim the grouping of parameters by dtype, higher-order operators the call of their function. So
  // torch's code gets the answer of eager mode.
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(ctx.callable));
  const bool own = pyapi::isKnownCode(code, pyapi::CodeFamily::kSaysRecording);
  const bool torch = torchapi::isTorchCode(ctx.frame.code, pyapi::globalsOf(ctx.act.frame));
  const bool report = own || (options_.reportCompiling && !torch);
  if (flow == Flow::kNext && report) {
    PyObject*& slot = ctx.act.peek(1);
    PyObject* old = slot;
    slot = Py_NewRef(Py_True);
    Py_DECREF(old);
  }
  result = Shadow::constant();
  return flow;
}

}  // namespace kintsugi::capture
