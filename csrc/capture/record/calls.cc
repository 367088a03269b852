// Record handlers: calls. Bound methods, partials and instances are unwrapped to what will really run; Python
// functions become frames, torch's functions operations, C callables what their model says; the rest is an
// opaque step.
#include <algorithm>

#include "capture/attributes.h"
#include "capture/breaks.h"
#include "capture/callee.h"
#include "capture/calls/function_modes.h"
#include "capture/calls/getters.h"
#include "capture/calls/inner_code.h"
#include "capture/calls/lazy.h"
#include "capture/calls/lru_caches.h"
#include "capture/calls/model.h"
#include "capture/calls/numpy.h"
#include "capture/calls/open_lists.h"
#include "capture/calls/substitutes.h"
#include "capture/calls/targets.h"
#include "capture/calls/torch_callables.h"
#include "capture/classes.h"
#include "capture/exceptions.h"
#include "capture/record/comptime.h"
#include "capture/record/fallback.h"
#include "capture/record/marks.h"
#include "capture/record/partials.h"
#include "capture/record/star_arguments.h"
#include "capture/record/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/callable_name.h"
#include "pyapi/classes.h"
#include "pyapi/code.h"
#include "pyapi/functions.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/object_layout.h"
#include "pyapi/opcodes.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

using guard::SourceKind;

namespace {

// The context for models: the outer instruction, with this call's callable and arguments.
CallContext contextOf(Call& call, const CallContext& outer) {
  CallContext ctx = outer;
  return ctx.of(call.callable, call.shadow, call.args.data(), call.shadows.data(), call.positional,
                call.kwnames);
}

Call callOf(const CallContext& ctx) {
  Call call;
  call.callable = ctx.callable;
  call.shadow = ctx.callableShadow;
  call.args.assign(ctx.args.begin(), ctx.args.end());
  call.shadows.assign(ctx.shadows.begin(), ctx.shadows.end());
  call.positional = ctx.positional;
  call.kwnames = ctx.kwnames;
  return call;
}

bool unwrapMethod(RecordContext& rec, Call& call) {
  PyObject* method = call.callable;
  if (call.shadow.isVirtual()) {
    Virtual& v = rec.objects.virtualOf(call.shadow);
    if (v.kind != VirtualKind::kMethod) return false;
    PyObject* self = v.partObjects[1].get();
    Shadow selfShadow = v.parts[1];
    call.shadow = v.parts[0];
    call.callable = v.partObjects[0].get();
    call.prepend(self, selfShadow);
    return true;
  }
  if (PyMethod_Check(method)) {
    ir::SourceId source = rec.guards.sourceOf(call.shadow, method);
    rec.guards.guardType(Shadow::source(source), method);
    PyObject* function = PyMethod_GET_FUNCTION(method);
    PyObject* self = PyMethod_GET_SELF(method);
    call.shadow = rec.guards.readSource(SourceKind::kMethodFunction, source, nullptr, 0, function);
    call.callable = function;
    call.prepend(self, rec.guards.readSource(SourceKind::kMethodSelf, source, nullptr, 0, self));
    return true;
  }
  return false;
}

// A builtin method that C code has bound to an object (`"abc".join`) becomes the descriptor and the object.
bool unwrapBuiltin(RecordContext& rec, Call& call) {
  if (!PyCFunction_Check(call.callable) || call.shadow.isValue()) return false;
  if (call.shadow.isSource() && rec.guards.comesFromStep(call.shadow))
    return false;  // another object in each run
  PyObject* self = PyCFunction_GET_SELF(call.callable);
  if (self == nullptr || PyModule_Check(self)) return false;
  pyapi::Ref<> name = pyapi::steal(PyObject_GetAttrString(call.callable, "__name__"));
  if (PyType_Check(self)) {  // dict.fromkeys and other class methods
    PyObject* method = name ? classMethodBehind(call.callable, name.get()) : nullptr;
    PyErr_Clear();
    if (method == nullptr || Py_TYPE(method) != &PyClassMethodDescr_Type || modelOf(method) == nullptr)
      return false;
    if (!rec.guards.pin(call.shadow, call.callable)) return false;
    call.callable = method;
    call.shadow = Shadow::constant();
    call.prepend(self, Shadow::constant());
    return true;
  }
  PyObject* descriptor = name ? pyapi::lookUpInType(Py_TYPE(self), name.get()) : nullptr;
  PyErr_Clear();
  if (descriptor == nullptr || Py_TYPE(descriptor) != &PyMethodDescr_Type) return false;
  // The class of the object may have another method under this name.
  if (pyapi::methodDefinitionOf(descriptor) != pyapi::definitionOf(call.callable)) return false;
  const bool plain = isPlain(self);
  auto known = plain ? std::nullopt : rec.objects.knownObject(self);
  if (!plain && (modelOf(descriptor) == nullptr || (known && !known->isSource()))) return false;
  if (!rec.guards.pin(call.shadow, call.callable)) return false;
  call.callable = descriptor;
  call.shadow = Shadow::constant();
  call.prepend(self, plain   ? Shadow::constant()
                     : known ? *known
                             : rec.guards.pinnedRoot(self));  // such as random.random
  return true;
}

// A class may have anything as `__call__`. What is no descriptor (a class, as typed dicts have; a partial, a
// module) is called without the object, and so is a static method.
bool unwrapPlainCall(RecordContext& rec, Call& call, PyObject* method) {
  const bool isStatic = Py_TYPE(method) == &PyStaticMethod_Type;
  if (!isStatic && pyapi::hasDescriptorGet(method)) return false;
  pyapi::Ref<> target =
      isStatic ? pyapi::steal(pyapi::bindDescriptor(method, nullptr, call.callable)) : pyapi::newRef(method);
  if (!target) PyErr_Clear();
  if (!target || call.shadow.isValue()) return false;
  rec.guards.guardType(call.shadow, call.callable);
  rec.guards.guardTypeVersion(Py_TYPE(call.callable));
  call.callable = target.get();
  call.shadow = classValue(rec, target.get());
  call.kept.push_back(std::move(target));
  return true;
}

bool unwrapInstance(RecordContext& rec, Call& call) {
  if (PyFunction_Check(call.callable) || PyCFunction_Check(call.callable)) return false;
  PyObject* method = specialMethod(Py_TYPE(call.callable), "__call__");
  if (method == nullptr) return false;
  if (!PyFunction_Check(method)) return unwrapPlainCall(rec, call, method);
  rec.guards.guardType(call.shadow, call.callable);
  rec.guards.guardTypeVersion(Py_TYPE(call.callable));
  PyObject* self = call.callable;
  Shadow shadow = call.shadow;
  if (PyType_Check(self) && shadow.isSource() && !rec.guards.pin(shadow, self)) return false;
  call.callable = method;
  call.shadow = Shadow::constant();
  call.prepend(self, shadow);
  return true;
}

// A compiled callable inside a recording is replaced by the function that it wraps.
bool unwrapCompiled(RecordContext& rec, Call& call) {
  PyObject* target = compiledTargetOf(call.callable);
  if (target == nullptr) return false;
  if (call.shadow.isSource() && !rec.guards.pin(call.shadow, call.callable)) return false;
  call.callable = target;
  call.shadow = Shadow::constant();
  return true;
}

void unwrap(RecordContext& rec, Call& call) {
  for (int depth = 0; depth < 16 && rec.live(); ++depth) {
    if (!PyFunction_Check(call.callable) && (isTorchOperator(call.callable) || isProfilerMark(call.callable)))
      return;
    if (unwrapCompiled(rec, call) || unwrapMethod(rec, call) || unwrapPartial(rec, call) ||
        unwrapBuiltin(rec, call))
      continue;
    if (!unwrapInstance(rec, call)) return;
  }
}

Flow opaque(Call& call, CallContext& ctx, diag::Code code, Shadow& result) {
  std::vector<std::string> args = {pyapi::callableName(call.callable)};
  if (code == diag::Code::KTG0107) args.push_back(disableReason(call.callable));
  ctx.rec.breaks.noteBreak(code, std::move(args));
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result);
}

bool torchArguments(RecordContext& rec, Call& call) {
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (pyapi::isA(call.args[i], torchapi::Known::kAsyncCollective)) continue;  // see TorchSteps::torchStep
    if (!rec.torch.values().accepts(call.shadows[i], call.args[i])) return false;
  }
  return true;
}

// True if the metadata of all tensors in the object is guarded. Python code may look at sizes.
bool staticMetadata(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (torchapi::isTensor(object)) {
    if (shadow.isValue() || shadow.isVirtual()) return rec.torch.values().hasStaticMeta(shadow, object);
    return !rec.guards.comesFromStep(shadow);
  }
  if (shadow.isValue()) return false;
  if (!PyTuple_Check(object) && !PyList_Check(object)) return true;
  const bool known = shadow.isVirtual() &&
                     rec.objects.virtualOf(shadow).parts.size() == static_cast<size_t>(Py_SIZE(object));
  for (Py_ssize_t i = 0; known && i < Py_SIZE(object); ++i) {
    PyObject* item = PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
    if (!staticMetadata(rec, rec.objects.virtualOf(shadow).parts[i], item)) return false;
  }
  return known || !rec.guards.comesFromStep(shadow);
}

bool staticArguments(RecordContext& rec, Call& call) {
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (!staticMetadata(rec, call.shadows[i], call.args[i])) return false;
  }
  return true;
}

PendingFrame pendingFor(Call& call) {
  PendingFrame pending;
  pending.code = PyFunction_GET_CODE(call.callable);
  pending.function = pyapi::newRef(call.callable);
  pending.functionShadow = call.shadow;
  pending.args = call.args;
  pending.shadows = call.shadows;
  pending.positional = call.positional;
  pending.kwnames = call.kwnames;
  return pending;
}

// The user has declared that the result is always the same, so what the function reads is not guarded.
Flow constantCall(Call& call, CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (call.shadow.isSource() && !rec.guards.pin(call.shadow, call.callable))
    return rec.execute(ctx.act, ctx.instr);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = rec.execute(ctx.act, ctx.instr);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  PyObject* object = ctx.act.peek(1);
  result = isPlainDeep(object) ? Shadow::constant() : rec.guards.pinnedRoot(object);
  return flow;
}

// A function that is an argument of the compiled one may be another object in each call (a lambda). So its
// code and its globals are guarded, not its identity. Its closure and defaults are guarded where they are
// read.
void guardCode(RecordContext& rec, Shadow shadow, PyObject* function) {
  PyObject* globals = PyFunction_GET_GLOBALS(function);
  rec.guards.guardType(shadow, function);
  rec.guards.guard(guard::GuardKind::kFunction, shadow.sourceId(),
                   rec.guards.constId(PyFunction_GET_CODE(function)));
  Shadow space = rec.guards.readSource(SourceKind::kGlobals, shadow.sourceId(), nullptr, 0, globals);
  if (space.isSource())
    rec.guards.guard(guard::GuardKind::kIs, space.sourceId(), rec.guards.constId(globals));
}

// Guards which function is called. False: the recording has ended.
bool pinCallee(RecordContext& rec, Call& call) {
  if (rec.guards.isArgument(call.shadow) && !isTorchFunctional(call.callable)) {
    guardCode(rec, call.shadow, call.callable);
    return rec.live();
  }
  if (call.shadow.isSource() && !rec.guards.pin(call.shadow, call.callable)) return false;
  if (!call.shadow.isVirtual()) rec.guards.pinFunction(call.callable);
  return rec.live();
}

// Once torch's own compiler was used in the process, torch counts modules as they are made. A program sees
// nothing of this.
bool isForeignBookkeeping(PyCodeObject* code) {
  return pyapi::isKnownCode(code, torchapi::CodeFamily::kCountsModules);
}

// kintsugi.graph_break("why"), and torch's function. A call in torch's own code (torch.optim around its
// steps) is meant for torch's compiler, so it is no break here.
bool asksForBreak(const PyCodeObject* code, const CallContext& ctx) {
  return pyapi::isKnownCode(code, pyapi::CodeFamily::kBreaksGraph) &&
         !torchapi::isTorchCode(ctx.frame.code, pyapi::globalsOf(ctx.act.frame));
}

Flow breakGraph(Call& call, CallContext& ctx, Shadow& result) {
  const bool said =
      !call.args.empty() && PyUnicode_CheckExact(call.args[0]) && PyUnicode_GET_LENGTH(call.args[0]) > 0;
  ctx.rec.breaks.noteBreak(diag::Code::KTG0115, {said ? std::string(": ") + pyapi::utf8(call.args[0]) : ""});
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result);
}

// Calls the function that the user has put in place of this one (capture/calls/substitutes.h).
std::optional<Flow> substituted(Call& call, CallContext& outer, Shadow& result) {
  PyObject* function = substituteOf(call.callable);
  const bool itself =
      function != nullptr && PyFunction_GET_CODE(function) == reinterpret_cast<PyObject*>(outer.frame.code);
  if (function == nullptr || itself) return std::nullopt;
  if (call.shadow.isSource() && !outer.rec.guards.pin(call.shadow, call.callable))
    return outer.rec.execute(outer.act, outer.instr);
  CallContext ctx = contextOf(call, outer);
  return callInstead(ctx, function, result);
}

// A call of a Python function: its frame is recorded too.
Flow inlineCall(Call& call, CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(call.callable));
  if (rec.callees.answersCompiling(call.callable)) return rec.callees.answerCompiling(ctx, result);
  if (isDisabled(call.callable)) {
    return isBookkeeping(call.callable) ? rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result)
                                        : opaque(call, ctx, diag::Code::KTG0107, result);
  }
  if (isForbidden(call.callable))
    return rec.breaks.raiseAssertion("kintsugi: " + pyapi::callableName(call.callable) +
                                     ", which forbid_in_graph() forbids in compiled code, was called there");
  if (isComptime(call.callable)) return comptimeCall(ctx, result);
  if (asksForBreak(code, ctx)) return breakGraph(call, ctx, result);
  if (isMarkedConstant(call.callable)) {
    rec.facts.bound = "a function that is marked as constant gave a part of it";
    return constantCall(call, ctx, result);
  }
  // Unknown code has seen the function, and may give it other defaults or other code in each run.
  if (call.shadow.isVirtual() && rec.objects.virtualOf(call.shadow).kind == VirtualKind::kFunction &&
      rec.objects.virtualOf(call.shadow).exposed)
    return opaque(call, ctx, diag::Code::KTG0102, result);
  if (isForeignBookkeeping(code)) {
    const Paused paused(rec.pauses);
    result = Shadow::constant();
    return rec.execute(ctx.act, ctx.instr);
  }
  // The user has declared that the results follow from the arguments and that nothing is changed: a single
  // step.
  if (isMarkedAllowed(call.callable)) return allowedCall(ctx, result);
  if (pyapi::flagsOf(code) & (CO_COROUTINE | CO_ASYNC_GENERATOR))
    return opaque(call, ctx, diag::Code::KTG0110, result);
  if (call.args.size() == 1 && iteratesOpenList(rec, call.callable, call.shadows[0])) {
    Flow flow = opaque(call, ctx, diag::Code::KTG0101, result);
    if (flow == Flow::kNext) openComprehension(rec, result);
    return flow;
  }
  if (rec.callees.isOpaqueCode(reinterpret_cast<PyObject*>(code)) || isWholeTransform(code))
    return opaque(call, ctx, isTransformCode(code) ? diag::Code::KTG0109 : diag::Code::KTG0102, result);
  if (auto flow = dispatchModel(ctx, result)) return *flow;
  {
    const Paused paused(rec.pauses);
    prepareTorchWrapper(call.callable);
  }
  if (!pinCallee(rec, call)) return rec.execute(ctx.act, ctx.instr);
  // Under a function mode, torch's Python code asks the mode, and its frames are part of tracebacks.
  if (isTorchFunctional(call.callable) && modelOfFunction(call.callable) != inlineFunction &&
      !torchapi::hasFunctionModes() && torchArguments(rec, call) && staticArguments(rec, call)) {
    return rec.torch.torchStep(ctx, result);
  }
  PendingFrame pending = pendingFor(call);
  bool generator = (pyapi::flagsOf(code) & CO_GENERATOR) != 0;
  if (!generator) pending.site = rec.snapshots.callSite(ctx.instr, ctx.popped);
  rec.callees.expectFrame(std::move(pending));
  Flow flow = rec.execute(ctx.act, ctx.instr);
  if (flow != Flow::kNext || !rec.live()) return flow;
  result = rec.callees.frameResult(ctx.act.peek(1));
  return flow;
}

bool isExceptionType(PyObject* type) {
  return PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type),
                          reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

// For a class with both `__new__` and `__init__` in Python: two frames, one after the other.
Flow twoStepCall(Call& call, CallContext& ctx, PyObject* make, PyObject* init, Shadow& result) {
  RecordContext& rec = ctx.rec;
  rec.guards.pinFunction(make);
  rec.guards.pinFunction(init);
  Call second = {init, Shadow::constant(), call.args, call.shadows, call.positional, call.kwnames, {}};
  second.prepend(nullptr, Shadow::null());
  call.prepend(call.callable, Shadow::constant());
  call.callable = make;
  call.shadow = Shadow::constant();
  PendingFrame first = pendingFor(call);
  first.rebuildable = false;
  PendingFrame next = pendingFor(second);
  next.selfIsNew = true;
  next.site = rec.snapshots.callSite(ctx.instr, ctx.popped, {}, ir::ReturnAction::kReplace);
  rec.callees.expectFrame(std::move(first));
  rec.callees.expectThen(std::move(next));
  Flow flow = rec.execute(ctx.act, ctx.instr);
  if (flow == Flow::kNext && rec.live()) result = madeInstance(rec, ctx.act.peek(1));
  return flow;
}

// For an exception whose class makes its instances in C.
Flow exceptionCall(Call& call, CallContext& ctx, bool known, Shadow& result) {
  RecordContext& rec = ctx.rec;
  Shadows parts = call.shadows;
  Refs objects;
  for (PyObject* arg : call.args) objects.push_back(pyapi::newRef(arg));
  const Paused paused(rec.pauses);
  Flow flow = runVirtual(ctx, known ? VirtualKind::kException : VirtualKind::kOpaque, result);
  if (flow == Flow::kNext && rec.live()) {
    rec.objects.virtualOf(result).parts = std::move(parts);
    rec.objects.virtualOf(result).partObjects = std::move(objects);
  }
  return flow;
}

// `cls(...)`: makes a virtual instance, with `__init__` (or `__new__`) as a frame if it is a Python function.
// `byType`: called by type.__call__ itself, whatever the metaclass has.
Flow classCall(Call& call, CallContext& ctx, bool byType, Shadow& result) {
  RecordContext& rec = ctx.rec;
  auto* type = reinterpret_cast<PyTypeObject*>(call.callable);
  PyObject* init = specialMethod(type, "__init__");
  PyObject* make = specialMethod(type, "__new__");
  bool finalizer = specialMethod(type, "__del__") != nullptr;
  const bool exception = isExceptionType(call.callable);
  if (exception) {
    if (call.shadow.isSource() && !rec.guards.pin(call.shadow, call.callable))
      return rec.execute(ctx.act, ctx.instr);
    const bool made = PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) == 0 || isRebuiltException(type);
    if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) rec.guards.guardTypeVersion(type);
    if (!made || !PyFunction_Check(init))
      return exceptionCall(call, ctx, made && call.kwnames == nullptr, result);
  }
  bool heap = PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) &&
              (byType || pyapi::callsLike(Py_TYPE(type), &PyType_Type));
  if (!heap || finalizer) return opaque(call, ctx, diag::Code::KTG0101, result);
  if (call.shadow.isSource() && !rec.guards.pin(call.shadow, call.callable))
    return rec.execute(ctx.act, ctx.instr);
  rec.guards.guardTypeVersion(type);
  bool plainNew = exception || pyapi::makesLike(type, &PyBaseObject_Type) ||
                  pyapi::makesLike(type, &PyDict_Type) || pyapi::makesLike(type, &PyODict_Type);
  if (make != nullptr && Py_TYPE(make) == &PyStaticMethod_Type) {
    pyapi::Ref<> function = pyapi::steal(pyapi::bindDescriptor(make, nullptr, call.callable));
    bool ownInit = init != nullptr && PyFunction_Check(init);
    if (!function || !PyFunction_Check(function.get())) return opaque(call, ctx, diag::Code::KTG0101, result);
    if (ownInit) return twoStepCall(call, ctx, function.get(), init, result);
    call.prepend(call.callable, Shadow::constant());
    call.callable = function.get();
    call.shadow = Shadow::constant();
    call.kept.push_back(std::move(function));
    rec.guards.pinFunction(call.callable);
    PendingFrame pending = pendingFor(call);
    pending.site = rec.snapshots.callSite(ctx.instr, ctx.popped);
    rec.callees.expectFrame(std::move(pending));
    Flow flow = rec.execute(ctx.act, ctx.instr);
    if (flow == Flow::kNext && rec.live()) result = rec.callees.returned();
    return flow;
  }
  if (auto flow =
          call.kwnames != nullptr ? std::nullopt : listCall(ctx, call.args, call.shadows, type, result))
    return *flow;
  if (!plainNew) return opaque(call, ctx, diag::Code::KTG0101, result);
  if (init != nullptr && PyFunction_Check(init)) {
    if (isDisabled(init) || rec.callees.isOpaqueCode(PyFunction_GET_CODE(init)))
      return opaque(call, ctx, diag::Code::KTG0102, result);
    call.prepend(nullptr, Shadow::null());
    call.callable = init;
    call.shadow = Shadow::constant();
    rec.guards.pinFunction(init);
    PendingFrame pending = pendingFor(call);
    pending.selfIsNew = true;
    pending.site = rec.snapshots.callSite(ctx.instr, ctx.popped, {}, ir::ReturnAction::kReplace);
    rec.callees.expectFrame(std::move(pending));
    Flow flow = rec.execute(ctx.act, ctx.instr);
    if (flow == Flow::kNext && rec.live()) result = madeInstance(rec, ctx.act.peek(1));
    return flow;
  }
  bool noInit = init != nullptr && Py_TYPE(init) == &PyWrapperDescr_Type && call.args.empty();
  if (!noInit) return opaque(call, ctx, diag::Code::KTG0101, result);
  return runVirtual(ctx, VirtualKind::kInstance, result);
}

// `type.__call__(cls, ...)`, which a metaclass's `__call__` calls in the end.
std::optional<Flow> typeCall(Call& call, CallContext& ctx, Shadow& result) {
  static constinit pyapi::Lazy<PyObject*> methodSlot;
  PyObject* method = methodSlot.get([] { return specialMethod(&PyType_Type, "__call__"); });
  if (call.callable == method && call.positional > 0 && PyType_Check(call.args[0]) &&
      call.args[0] != reinterpret_cast<PyObject*>(&PyType_Type)) {
    Call made;
    made.callable = call.args[0];
    made.shadow = call.shadows[0];
    made.args.assign(call.args.begin() + 1, call.args.end());
    made.shadows.assign(call.shadows.begin() + 1, call.shadows.end());
    made.positional = call.positional - 1;
    made.kwnames = call.kwnames;
    return classCall(made, ctx, true, result);
  }
  return std::nullopt;
}

// A getter (operator.itemgetter and the like) that is on the value stack itself: calls a polyfill.
std::optional<Flow> getterFlow(Call& call, CallContext& outer, Shadow& result) {
  const int popped = static_cast<int>(outer.popped);
  if (popped < 2 || call.positional != 1 || call.args.size() != 1) return std::nullopt;
  PyObject*& slot = outer.act.peek(calleeDepth(outer.act, popped));
  if (slot != call.callable) return std::nullopt;
  auto getter = getterCall(outer.rec, call.shadow, call.callable, outer.frame.code);
  if (!getter) return std::nullopt;
  pyapi::Ref<> kept = pyapi::steal(std::exchange(slot, getter->callable.release()));
  pyapi::Ref<> names = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(getter->names.size())));
  for (size_t i = 0; i < getter->names.size(); ++i)
    PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i), Py_NewRef(getter->names[i].get()));
  Call inner;
  inner.callable = getter->function;
  inner.shadow = Shadow::constant();
  const size_t positional = getter->args.size() - getter->names.size();
  for (const pyapi::Ref<>& arg : getter->args) inner.args.push_back(arg.get());
  inner.shadows = getter->shadows;
  const auto at = static_cast<std::ptrdiff_t>(positional);
  inner.args.insert(inner.args.begin() + at, call.args[0]);
  inner.shadows.insert(inner.shadows.begin() + at, call.shadows[0]);
  inner.positional = positional + 1;
  inner.kwnames = names.get();
  CallContext ctx = contextOf(inner, outer);
  return inlineCall(inner, ctx, result);
}

// For an object whose `__call__` is C code with a model.
std::optional<Flow> objectCall(Call& call, const CallContext& outer, Shadow& result) {
  PyObject* method = specialMethod(Py_TYPE(call.callable), "__call__");
  if (method != nullptr && PyInstanceMethod_Check(method))  // pybind's
    method = PyInstanceMethod_GET_FUNCTION(method);
  CallModel model = method != nullptr && !PyFunction_Check(method) ? modelOf(method) : nullptr;
  if (model == nullptr || call.shadow.isValue()) return std::nullopt;
  outer.rec.guards.guardType(call.shadow, call.callable);
  PyObject* self = call.callable;
  const Shadow shadow = call.shadow;
  call.callable = method;
  call.shadow = Shadow::constant();
  call.prepend(self, shadow);
  CallContext ctx = contextOf(call, outer);
  return model(ctx, result);
}

// A tensor that a weak reference refers to is read as an attribute is. Not behind effects of the trace: they
// may end it, and then only the call finds that out. Other objects would be held by guards on what is read of
// them, and their ends may run code.
std::optional<Flow> referentCall(Call& call, CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (ctx.total() != 0 || ctx.kwnames != nullptr || rec.steps.isBehindEffect()) return std::nullopt;
  if (!call.shadow.isSource() && !call.shadow.isConst()) return std::nullopt;
  pyapi::Ref<> referent = pyapi::newRef(pyapi::referentOf(call.callable));
  if (!torchapi::isTensor(referent.get())) return std::nullopt;
  const ir::SourceId source = rec.guards.sourceOf(call.shadow, call.callable);
  rec.guards.guardType(Shadow::source(source), call.callable);
  result = rec.guards.readSource(SourceKind::kReferent, source, nullptr, 0, referent.get());
  return rec.steps.replaceCall(ctx, std::move(referent));
}

Flow dispatchKnown(Call& call, CallContext& outer, Shadow& result) {
  RecordContext& rec = outer.rec;
  CallContext direct = contextOf(call, outer);
  if (auto flow = mapOperatorCall(direct, result)) return *flow;
  if (auto flow = substituted(call, outer, result)) return *flow;
  unwrap(rec, call);
  if (!rec.live()) return rec.execute(outer.act, outer.instr);
  if (auto flow = getterFlow(call, outer, result)) return *flow;
  if (!rec.live()) return rec.execute(outer.act, outer.instr);
  CallContext ctx = contextOf(call, outer);
  CallModel known = PyFunction_Check(call.callable) ? modelOfFunction(call.callable) : nullptr;
  if (known != nullptr && !pinCallee(rec, call)) return rec.execute(outer.act, outer.instr);
  if (known != nullptr) return known(ctx, result);
  if (PyFunction_Check(call.callable)) return inlineCall(call, ctx, result);
  if (!call.shadow.isValue()) {
    PyObject* self = call.positional > 0 ? call.args[0] : nullptr;
    if (pyapi::isOfAnotherClass(call.callable, self) ||
        (self != nullptr && pyapi::isOverriddenInC(call.callable, Py_TYPE(self))))
      return opaque(call, ctx, diag::Code::KTG0101, result);
    if (self != nullptr && pyapi::isMethodOfC(call.callable)) rec.guards.guardType(call.shadows[0], self);
    if (Py_TYPE(call.callable) == &PyClassMethodDescr_Type && !rec.guards.pin(call.shadows[0], self))
      return rec.execute(ctx.act, ctx.instr);
    if (CallModel model = modelOf(call.callable)) {
      if (call.shadow.isSource() && !rec.guards.pin(call.shadow, call.callable))
        return rec.execute(ctx.act, ctx.instr);
      ctx.callableShadow = call.shadow;
      return model(ctx, result);
    }
    if (isProfilerMark(call.callable)) return knownModel(ctx, result);
    if (isTorchCallable(call.callable)) {
      if (call.shadow.isSource() && !rec.guards.pin(call.shadow, call.callable))
        return rec.execute(ctx.act, ctx.instr);
      ctx.callableShadow = call.shadow;
      return torchArguments(rec, call) ? rec.torch.torchStep(ctx, result) : opaqueModel(ctx, result);
    }
  }
  if (!call.shadow.isValue() && countsReferences(call.callable)) return countingModel(ctx, result);
  if (!call.shadow.isValue() && isNumpyCallable(call.callable)) {
    if (call.shadow.isSource() && !rec.guards.comesFromStep(call.shadow) &&
        !rec.guards.pin(call.shadow, call.callable))
      return rec.execute(ctx.act, ctx.instr);
    return numpyModel(ctx, result);
  }
  if (PyType_Check(call.callable)) return classCall(call, ctx, false, result);
  if (auto flow = typeCall(call, ctx, result)) return *flow;
  if (auto flow = objectCall(call, outer, result)) return *flow;
  if (auto flow = cachedCall(ctx, result)) return *flow;
  if (PyWeakref_CheckRefExact(call.callable)) {
    if (auto flow = referentCall(call, ctx, result)) return *flow;
    return knownModel(ctx, result);
  }
  ctx.callableShadow = call.shadow;
  if (auto flow = attributeGetter(ctx, result)) return *flow;
  return opaque(call, ctx, diag::Code::KTG0101, result);
}

// Records the instruction as this call. The instruction pushes one result; its shadow is `result`.
Flow dispatch(Call& call, CallContext& outer, Shadow& result) {
  try {
    return dispatchKnown(call, outer, result);
  } catch (const MissingArgument&) {
    if (outer.rec.instruction.isExecuted()) throw;
    CallContext ctx = contextOf(call, outer);
    return opaque(call, ctx, diag::Code::KTG0101, result);
  }
}

Flow finish(RecordContext& rec, ShadowFrame& f, Flow flow, size_t popped, Shadow result) {
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(popped);
  f.push(result);
  return flow;
}

// CALL, and CALL_KW, which has the names of the keywords on top.
Flow call(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const int above = in.op == op::CALL_KW ? 1 : 0;
  const int lower = static_cast<int>(in.arg) + above + 2;
  Call c;
  const int at = calleeDepth(act, lower);
  c.callable = act.peek(at);
  c.shadow = f.top(at);
  c.kwnames = above != 0 ? act.peek(1) : act.kwnames;
  for (int i = callsMethod(act, lower) ? lower - 1 : lower - 2; i > above; --i) {
    c.args.push_back(act.peek(i));
    c.shadows.push_back(f.top(i));
  }
  size_t kw = c.kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(c.kwnames)) : 0;
  c.positional = c.args.size() - kw;
  CallContext ctx(rec, f, act, in);
  ctx.kwnames = c.kwnames;
  ctx.popped = static_cast<size_t>(lower);
  Shadow result;
  Flow flow = dispatch(c, ctx, result);
  return finish(rec, f, flow, ctx.popped, result);
}

// `f(*args, **kwargs)`: a callable and a null, a tuple or another iterable, perhaps a dict.
Flow callEx(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  bool withKw = (in.arg & 1) != 0;
  int at = withKw ? 2 : 1;
  Call c;
  if (!takeArguments(rec, f, act, in, at)) return Flow::kRaise;
  if (!rec.live()) return rec.execute(act, in);
  PyObject *callargs = act.peek(at), *kwargs = withKw ? act.peek(1) : nullptr;
  const int callee = calleeDepth(act, at + 2);
  c.callable = act.peek(callee);
  c.shadow = f.top(callee);
  auto parts = f.top(at).isValue() ? std::nullopt : rec.objects.iterated(f.top(at), callargs);
  bool sequence = PyTuple_Check(callargs) || PyList_Check(callargs);
  bool ok = parts && sequence && (kwargs == nullptr || (PyDict_CheckExact(kwargs) && !f.top(1).isValue()));
  pyapi::Ref<> names;
  if (ok) {
    for (size_t i = 0; i < parts->size(); ++i) {
      c.args.push_back(PyTuple_Check(callargs) ? PyTuple_GET_ITEM(callargs, i)
                                               : PyList_GET_ITEM(callargs, i));
      c.shadows.push_back((*parts)[i]);
    }
    c.positional = c.args.size();
    if (kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0) {
      auto values = rec.objects.dictParts(f.top(1), kwargs, 1);
      names = pyapi::steal(PySequence_Tuple(kwargs));
      ok = values.has_value();
      for (size_t i = 0; ok && i < values->size(); ++i) {
        c.args.push_back(PyDict_GetItemWithError(kwargs, PyTuple_GET_ITEM(names.get(), i)));
        c.shadows.push_back((*values)[i]);
      }
      c.kwnames = names.get();
    } else if (kwargs != nullptr) {
      rec.guards.pinLength(f.top(1), kwargs);
    }
  }
  if (!ok || !rec.live()) {
    rec.abort(diag::Code::KTG0101, {"a call with unpacked arguments"});
    return rec.execute(act, in);
  }
  CallContext ctx(rec, f, act, in);
  ctx.kwnames = c.kwnames;
  ctx.popped = static_cast<size_t>(at) + 2;
  Shadow result;
  Flow flow = dispatch(c, ctx, result);
  return finish(rec, f, flow, ctx.popped, result);
}

}  // namespace

Flow callInstead(CallContext& ctx, PyObject* function, Shadow& result) {
  if (!acceptsArguments(function, ctx)) return opaqueModel(ctx, result);
  const int popped = static_cast<int>(ctx.popped);
  PyObject*& slot = ctx.act.peek(calleeDepth(ctx.act, popped));
  if (slot != ctx.callable) return opaqueModel(ctx, result);  // a bound method, or a partial
  pyapi::Ref<> kept = pyapi::newRef(slot);
  Py_SETREF(slot, Py_NewRef(function));
  CallContext inner = ctx;
  Call call = callOf(inner);
  call.callable = function;
  call.shadow = Shadow::constant();
  return dispatch(call, inner, result);
}

Flow inlineFunction(CallContext& ctx, Shadow& result) {
  Call call = callOf(ctx);
  return inlineCall(call, ctx, result);
}

void registerCallRecords(RecordTable& t) {
  t[op::CALL] = t[op::CALL_KW] = call;
  t[op::CALL_FUNCTION_EX] = callEx;
}

}  // namespace kintsugi::capture
