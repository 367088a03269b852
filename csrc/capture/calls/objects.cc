// Models: object, tuple.__new__, functools, itertools, typing and other small things.
#include <string>

#include "capture/attributes.h"
#include "capture/calls/argument_iterator.h"
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/classes.h"
#include "capture/sizes.h"
#include "capture/tables/pauses.h"
#include "capture/tensor_attributes.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// The object is not tracked by the trace: each run makes the call again.
Flow attributeStep(CallContext& ctx, Shadow& result) {
  const std::optional<CallKind> kind = storeKind(ctx.rec, ctx.args[0], ctx.args[1]);
  if (!kind) return run(ctx);
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.snapshots.escape(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  ctx.shadows.replace(shadows.data());
  if (torchapi::isTensor(ctx.args[0])) {
    noteWriteToTensor(ctx.rec, ctx.shadows[0], ctx.args[0], ctx.args[1]);
    if (auto value = ctx.rec.ops().valueOf(ctx.args[0])) forgetMeta(ctx.rec, *value);
  }
  Flow flow = ctx.rec.steps.callStep(ctx, *kind, nullptr, result);
  result = Shadow::constant();  // None
  return flow;
}

bool isNamed(CallContext& ctx, size_t total) {
  Shadow name = ctx.shadows[1];
  return ctx.total() == total && ctx.kwnames == nullptr && PyUnicode_CheckExact(ctx.args[1]) &&
         ctx.rec.guards.tryPinDeep(name, ctx.args[1]);
}

Flow enterSetter(CallContext& ctx, PyObject* setter, Shadow value, PyObject* real) {
  PendingFrame pending = setterFrame(ctx.rec, setter, ctx.shadows[0], ctx.args[0], ctx.args[1], value, real);
  // The call returns None, whatever the function returns.
  pending.site = ctx.rec.snapshots.callSite(ctx.instr, ctx.popped, {}, ir::ReturnAction::kReplace);
  pending.site.replacement = Shadow::constant();
  pending.site.replacementObject = pyapi::newRef(Py_None);
  ctx.rec.callees.expectFrame(std::move(pending));
  return run(ctx);
}

Flow setattrModel(CallContext& ctx, Shadow& result) {
  if (!isNamed(ctx, 3)) return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  if (torchapi::isTensor(ctx.args[0])) return attributeStep(ctx, result);
  result = Shadow::constant();
  PyObject* setter = nullptr;
  if (!ctx.rec.stores.planStore(ctx.shadows[0], ctx.args[0], ctx.args[1], ctx.shadows[2], ctx.args[2],
                                setter))
    return run(ctx);
  if (setter == Py_None) return attributeStep(ctx, result);
  return setter == nullptr ? run(ctx) : enterSetter(ctx, setter, ctx.shadows[2], ctx.args[2]);
}

Flow delattrModel(CallContext& ctx, Shadow& result) {
  if (!isNamed(ctx, 2)) return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  if (torchapi::isTensor(ctx.args[0])) return attributeStep(ctx, result);
  result = Shadow::constant();
  PyObject* deleter = nullptr;
  if (!ctx.rec.stores.planDelete(ctx.shadows[0], ctx.args[0], ctx.args[1], deleter)) return run(ctx);
  return deleter == nullptr ? run(ctx) : enterSetter(ctx, deleter, Shadow::null(), nullptr);
}

// `object.__delattr__(self, name)`.
Flow objectDelattrModel(CallContext& ctx, Shadow& result) {
  result = Shadow::constant();
  if (!isNamed(ctx, 2)) return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  if (ctx.shadows[0].isValue()) return attributeStep(ctx, result);
  ctx.rec.stores.deleteGeneric(ctx.shadows[0], ctx.args[0], ctx.args[1]);
  return run(ctx);
}

// `object.__setattr__(self, name, value)`, called directly or through super().
Flow objectSetattrModel(CallContext& ctx, Shadow& result) {
  Shadow name = ctx.shadows[1];
  result = Shadow::constant();
  PyObject* setter = nullptr;
  if (ctx.total() != 3 || !PyUnicode_CheckExact(ctx.args[1]) || !ctx.rec.guards.pin(name, ctx.args[1]))
    return run(ctx);
  if (ctx.shadows[0].isValue()) return attributeStep(ctx, result);
  ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
  if (!ctx.rec.stores.storeGeneric(ctx.shadows[0], ctx.args[0], ctx.args[1], ctx.shadows[2], ctx.args[2],
                                   setter))
    return run(ctx);
  if (setter == nullptr) return run(ctx);
  return setter == Py_None ? attributeStep(ctx, result)
                           : enterSetter(ctx, setter, ctx.shadows[2], ctx.args[2]);
}

Flow objectGetattributeModel(CallContext& ctx, Shadow& result) {
  Shadow name = ctx.shadows[1];
  if (!PyUnicode_CheckExact(ctx.args[1]) || ctx.shadows[0].isValue()) return opaqueModel(ctx, result);
  if (!ctx.rec.guards.pin(name, ctx.args[1])) return run(ctx);
  return readByPlan(ctx, planGeneric(ctx.rec, ctx.shadows[0], ctx.args[0], ctx.args[1]), false, result);
}

Flow objectInitModel(CallContext& ctx, Shadow& result) {
  result = Shadow::constant();
  return run(ctx);
}

// `object.__new__(cls)`: an instance without attributes.
Flow objectNewModel(CallContext& ctx, Shadow& result) {
  Shadow cls = ctx.shadows[0];
  if (!pinClasses(ctx.rec, cls, ctx.args[0])) return run(ctx);
  return runVirtual(ctx, VirtualKind::kInstance, result);
}

// `object()`.
Flow plainObjectModel(CallContext& ctx, Shadow& result) {
  return ctx.total() == 0 ? runVirtual(ctx, VirtualKind::kInstance, result) : opaqueModel(ctx, result);
}

// `types.SimpleNamespace(a=1)`.
Flow namespaceModel(CallContext& ctx, Shadow& result) {
  if (ctx.positional != 0) return opaqueModel(ctx, result);
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  pyapi::Ref<> names = pyapi::newRef(ctx.kwnames);
  Flow flow = runVirtual(ctx, VirtualKind::kInstance, result);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  for (size_t i = 0; i < shadows.size(); ++i) {
    ctx.rec.objects.setAttrShadow(ctx.rec.objects.virtualOf(result),
                                  PyTuple_GET_ITEM(names.get(), static_cast<Py_ssize_t>(i)), shadows[i]);
  }
  return flow;
}

// The call binds its first argument to its second.
Flow bind(CallContext& ctx, Shadow& result) {
  pyapi::Ref<> function = pyapi::newRef(ctx.args[0]), self = pyapi::newRef(ctx.args[1]);
  const Shadow functionShadow = ctx.shadows[0], selfShadow = ctx.shadows[1];
  ctx.rec.guards.guardType(functionShadow, function.get());  // decides whether it can be called
  ctx.rec.guards.guardType(selfShadow, self.get());          // it must not be None
  Flow flow = run(ctx);
  if (flow == Flow::kNext && ctx.rec.live()) {
    result = boundMethod(ctx.rec, ctx.act.peek(1), function.get(), functionShadow, self.get(), selfShadow);
  }
  return flow;
}

// `types.MethodType(function, object)`.
Flow methodTypeModel(CallContext& ctx, Shadow& result) {
  const bool binds = ctx.total() == 2 && ctx.kwnames == nullptr && !ctx.shadows[0].isValue();
  return binds ? bind(ctx, result) : knownModel(ctx, result);
}

// `function.__get__(object, cls)`.
Flow functionGetModel(CallContext& ctx, Shadow& result) {
  const bool binds = (ctx.total() == 2 || ctx.total() == 3) && ctx.kwnames == nullptr &&
                     ctx.args[1] != Py_None && !ctx.shadows[0].isValue();
  if (!binds) return knownModel(ctx, result);
  return bind(ctx, result);
}

// `tuple.__new__(cls, iterable)`, as named tuples call it.
Flow tupleNewModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() == 2 && makesFrames(ctx, 1)) {
    if (PyObject* function = polyfill("tuple_new")) return callInstead(ctx, function, result);
  }
  Shadow cls = ctx.shadows[0];
  if (ctx.total() != 2 || !ctx.rec.guards.pin(cls, ctx.args[0]) || ctx.shadows[1].isValue())
    return opaqueModel(ctx, result);
  auto parts = ctx.rec.objects.iterated(ctx.shadows[1], ctx.args[1]);
  if (!parts) return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  Flow flow = run(ctx);
  if (flow == Flow::kNext && ctx.rec.live())
    result = ctx.rec.objects.tupleOf(ctx.act.peek(1), std::move(*parts));
  return flow;
}

// Types of immutable values: the arguments are pinned, so the result is equal in every run.
Flow valueTypeModel(CallContext& ctx, Shadow& result) {
  if (torchapi::hasFunctionModes()) return opaqueModel(ctx, result);  // a function mode sees the call
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.tryPinDeep(shadows[i], ctx.args.any(i)))
      return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
  }
  result = Shadow::constant();
  return run(ctx);
}

// The result follows from functions and classes only, which are pinned.
Flow introspectModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow s = ctx.shadows.any(i);
    bool method = s.isVirtual() && rec.objects.virtualOf(s).kind == VirtualKind::kMethod;
    if (method ? !rec.objects.virtualOf(s).parts[0].isConst() : !rec.guards.tryPinDeep(s, ctx.args.any(i))) {
      return rec.live() ? opaqueModel(ctx, result) : run(ctx);
    }
  }
  const Paused paused(rec.pauses);
  result = Shadow::constant();
  return run(ctx);
}

// `BaseException.__init__(self, *args)`, called by the `__init__` of an exception class of the program.
Flow exceptionInitModel(CallContext& ctx, Shadow& result) {
  Shadow self = ctx.total() > 0 ? ctx.shadows[0] : Shadow::null();
  const bool ours = self.isVirtual() && ctx.rec.objects.virtualOf(self).kind == VirtualKind::kException &&
                    ctx.rec.objects.virtualOf(self).value == ir::kNone && ctx.kwnames == nullptr;
  if (!ours) return opaqueModel(ctx, result);
  Shadows parts(ctx.shadows.begin() + 1, ctx.shadows.end());
  Refs objects;
  for (size_t i = 1; i < ctx.total(); ++i) objects.push_back(pyapi::newRef(ctx.args.any(i)));
  result = Shadow::constant();
  Flow flow = run(ctx);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  ctx.rec.objects.virtualOf(self).parts = std::move(parts);
  ctx.rec.objects.virtualOf(self).partObjects = std::move(objects);
  ctx.rec.objects.noteChange();
  return flow;
}

// `exception.with_traceback(traceback)`.
Flow withTracebackModel(CallContext& ctx, Shadow& result) {
  Shadow self = ctx.shadows[0];
  const bool ours = ctx.total() == 2 && self.isVirtual() &&
                    ctx.rec.objects.virtualOf(self).kind == VirtualKind::kException &&
                    ctx.rec.objects.virtualOf(self).value == ir::kNone;
  const bool known = ours && (ctx.args[1] == Py_None ? ctx.shadows[1].isConst()
                                                     : ctx.rec.objects.knownObject(ctx.args[1]).has_value());
  if (!known) return opaqueModel(ctx, result);
  result = self;
  ctx.rec.objects.noteChange();
  return run(ctx);
}

// `weakref.ref(object)` is only known for an object that is held outside the trace. An object that the trace
// has made may go at another moment in a replay, and a callback may do anything.
Flow weakrefModel(CallContext& ctx, Shadow& result) {
  const Shadow referent = ctx.total() == 1 ? ctx.shadows[0] : Shadow::null();
  const bool outside = referent.isConst() || (referent.isSource() && !ctx.rec.guards.comesFromStep(referent));
  return outside ? knownModel(ctx, result) : opaqueModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    {"weakref.ref", weakrefModel, gives(kAnItem)},
    {"builtins.BaseException.with_traceback", withTracebackModel, gives(kAnItem)},
    {"builtins.id", keepModel, kReadsWorld.gives("int").runsNoPython()},
    {"inspect.signature", introspectModel, gives("inspect.Signature").raises("ValueError")},
    {"contextvars.ContextVar.set", keepModel, kWritesProcess.gives("_contextvars.Token")},
    {"contextvars.ContextVar.get", keepModel, kReadsProcess.gives(kAnItem)},
    {"contextvars.ContextVar.reset", keepModel, kWritesProcess.gives("None")},
    {"builtins.setattr", setattrModel, gives("None").raises("AttributeError")},
    {"builtins.delattr", delattrModel, gives("None").raises("AttributeError")},
    {"builtins.object.__delattr__", objectDelattrModel, gives("None").raises("AttributeError")},
    {"builtins.object.__setattr__", objectSetattrModel, gives("None").raises("AttributeError")},
    {"builtins.object.__getattribute__", objectGetattributeModel, gives(kAnItem).raises("AttributeError")},
    {"builtins.object.__init__", objectInitModel, gives("None")},
    {"builtins.object.__init_subclass__", objectInitModel, gives("None")},
    {"builtins.object.__new__", objectNewModel, gives(kItsObject)},
    {"builtins.tuple.__new__", tupleNewModel, gives(kItsObject)},
    {"builtins.object", plainObjectModel, gives("object").runsNoPython()},
    {"types.SimpleNamespace", namespaceModel, gives("types.SimpleNamespace").raises("ValueError")},
    {"types.MethodType", methodTypeModel, gives("method").runsNoPython()},
    {"types.FunctionType.__get__", functionGetModel, gives("argument method")},
    {"sys.getsizeof", knownModel, gives("int")},
    {"gc.isenabled", knownModel, kReadsProcess.gives("bool").runsNoPython()},
    {"time.time", knownModel, kReadsWorld.gives("float").runsNoPython()},
    {"time.perf_counter", knownModel, kReadsWorld.gives("float").runsNoPython()},
    {"time.monotonic", knownModel, kReadsWorld.gives("float").runsNoPython()},
    {"time.time_ns", knownModel, kReadsWorld.gives("int").runsNoPython()},
    {"time.perf_counter_ns", knownModel, kReadsWorld.gives("int").runsNoPython()},
    {"torch.Size", valueTypeModel, gives("torch.Size")},
    {"torch.device", valueTypeModel, gives("torch.device").raises("RuntimeError ValueError")},
};

}  // namespace

Flow keepModel(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow s = ctx.shadows.any(i);
    if (s.isVirtual() && !ctx.rec.snapshots.escape(s, ctx.args.any(i))) return run(ctx);
  }
  return knownModel(ctx, result);
}

void registerObjectModels() {
  addTable<kRows>();
  // Each C exception class has an `__init__` wrapper of its own. Most do the same as BaseException's and get
  // the same row.
  auto* root = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  PyObject *name, *object;
  Py_ssize_t at = 0;
  while (PyDict_Next(PyEval_GetBuiltins(), &at, &name, &object)) {
    auto* type = reinterpret_cast<PyTypeObject*>(object);
    if (!PyType_Check(object) || !PyType_IsSubtype(type, root) || !pyapi::initializesLike(type, root))
      continue;
    const std::string path = "builtins." + pyapi::utf8(name) + ".__init__";
    const ModelRow row{path.c_str(), exceptionInitModel, gives("None")};
    addModels(&row, 1);
  }
}

}  // namespace kintsugi::capture
