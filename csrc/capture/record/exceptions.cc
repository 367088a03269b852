// Record handlers: raising, catching and `with`.
//
// An exception that is raised and caught inside the trace is ordinary control flow: guards cover what decided
// that it was raised. If no guard covers that (an operation on data, an opaque step), the recording ends when
// it is caught.
#include "capture/exceptions.h"
#include "capture/attributes.h"
#include "capture/calls/model.h"
#include "capture/handlers/handlers.h"
#include "capture/record/fallback.h"
#include "capture/record/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/exception_state.h"
#include "pyapi/lazy.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// Guards the class or instance that is raised, because handlers choose by it.
bool pinRaised(RecordContext& rec, Shadow& shadow, PyObject* object) {
  if (!shadow.isSource()) return true;
  if (PyExceptionClass_Check(object)) return rec.guards.pin(shadow, object);
  rec.guards.guardType(shadow, object);
  return rec.live();
}

Flow raise(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (in.arg == 0) {
    ShadowFrame* handling = handlingFrame(rec);
    if (handling == nullptr) {
      rec.abort(diag::Code::KTG0103, {"an exception that the caller handles"});
      return rec.execute(act, in);
    }
    noteRaised(rec, handling->handledObject.get(), false);
  }
  for (int at = static_cast<int>(in.arg); at > 0; --at) {
    if (!pinRaised(rec, f.top(at), act.peek(at))) return rec.execute(act, in);
  }
  if (in.arg > 0) noteRaised(rec, act.peek(static_cast<int>(in.arg)), false);
  const Paused paused(rec.pauses);  // `raise Class` makes the instance in C
  return rec.execute(act, in);
}

// The exception is on top; below it is what was handled before.
Flow pushExcInfo(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Flow flow = rec.execute(act, in);
  Shadow exception = f.pop();
  if (f.handled.isNull()) f.handledOver = f.stack.size();
  f.push(f.handled);
  f.push(exception);
  f.handled = exception;
  f.handledObject = pyapi::newRef(act.peek(1));
  return flow;
}

Flow popExcept(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  pyapi::Ref<> before = pyapi::newRef(act.peek(1));
  if (!f.heldByHandled.empty()) releasePassedFrames(rec, f);
  Flow flow = rec.execute(act, in);
  if (!rec.live()) return flow;
  f.handled = f.pop();
  f.handledObject = f.handled.isNull() ? nullptr : std::move(before);
  return flow;
}

Flow checkExcMatch(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (!rec.guards.pinDeep(f.top(), act.peek(1))) return rec.execute(act, in);
  if (f.top(2).isSource()) rec.guards.guardType(f.top(2), act.peek(2));
  const Paused paused(rec.pauses);
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.top() = Shadow::constant();
  return flow;
}

bool isGroup(PyObject* exception) {
  return PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup)) != 0;
}

// The exceptions that the group was made from.
PyObject* membersOf(PyObject* group) {
  PyObject* args = pyapi::partsOf(group).args;
  return PyTuple_GET_SIZE(args) == 2 ? PyTuple_GET_ITEM(args, 1) : nullptr;
}

// True if the trace has made the exception and, for a group, all of its members, so that C code alone splits
// it.
bool isKnownGroup(RecordContext& rec, PyObject* exception) {
  if (exception == Py_None) return true;
  auto known = rec.objects.knownObject(exception);
  if (!known || !known->isVirtual() || rec.objects.virtualOf(*known).kind != VirtualKind::kException)
    return false;
  if (!isGroup(exception)) return true;
  static constinit pyapi::Lazy<PyObject*> plainGroupSlot;
  PyObject* plainGroup =
      plainGroupSlot.get([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "ExceptionGroup"); });
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(exception));
  PyObject* members = membersOf(exception);
  if (type != plainGroup && type != PyExc_BaseExceptionGroup) return false;
  if (members == nullptr || !(PyList_CheckExact(members) || PyTuple_CheckExact(members))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(members); ++i) {
    if (!isKnownGroup(rec, PySequence_Fast_GET_ITEM(members, i))) return false;
  }
  return true;
}

// The shadow of a part of such a group: a known exception, or a new group of some of them.
std::optional<Shadow> describeGroup(RecordContext& rec, PyObject* exception) {
  if (exception == Py_None) return Shadow::constant();
  if (auto known = rec.objects.knownObject(exception)) return known;
  PyObject* members = isGroup(exception) ? membersOf(exception) : nullptr;
  if (members == nullptr || !PyList_CheckExact(members)) return std::nullopt;
  Shadows parts;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(members); ++i) {
    auto part = describeGroup(rec, PyList_GET_ITEM(members, i));
    if (!part) return std::nullopt;
    parts.push_back(*part);
  }
  Shadow list = rec.objects.newVirtual(VirtualKind::kList, members);
  rec.objects.virtualOf(list).parts = std::move(parts);
  Shadow group = rec.objects.newVirtual(VirtualKind::kException, exception);
  Virtual& v = rec.objects.virtualOf(group);
  v.parts = {Shadow::constant(), list};
  v.partObjects.push_back(pyapi::newRef(PyTuple_GET_ITEM(pyapi::partsOf(exception).args, 0)));
  v.partObjects.push_back(pyapi::newRef(members));
  return group;
}

Flow endGroup(RecordContext& rec, Activation& act, const Instr& in, bool before) {
  rec.abort(diag::Code::KTG0106, {"except*"});
  return before ? rec.execute(act, in) : Flow::kNext;
}

// `except* Type`: [exception, type] becomes [rest, match], or [exception, None].
Flow checkEgMatch(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (!rec.guards.pinDeep(f.top(1), act.peek(1))) return rec.execute(act, in);
  if (!isKnownGroup(rec, act.peek(2))) return endGroup(rec, act, in, true);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = rec.execute(act, in);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  PyObject *match = act.peek(1), *rest = act.peek(2);
  f.drop(1);
  if (match == Py_None) {
    f.push(Shadow::constant());
    return flow;
  }
  auto matched = describeGroup(rec, match), left = describeGroup(rec, rest);
  if (!matched || !left) return endGroup(rec, act, in, false);
  f.drop(1);
  f.push(*left);
  f.push(*matched);
  f.handled = *matched;
  f.handledObject = pyapi::newRef(match);
  rec.objects.noteChange();
  return flow;
}

// Combines what the `except*` clauses have raised or left over into the exception to raise, or None.
Flow prepReraiseStar(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* raised = act.peek(1);
  bool known = isKnownGroup(rec, act.peek(2)) && PyList_CheckExact(raised);
  for (Py_ssize_t i = 0; known && i < PyList_GET_SIZE(raised); ++i)
    known = isKnownGroup(rec, PyList_GET_ITEM(raised, i));
  if (!known) return endGroup(rec, act, in, true);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = rec.execute(act, in);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  auto result = describeGroup(rec, act.peek(1));
  if (!result) return endGroup(rec, act, in, false);
  f.drop(2);
  f.push(*result);
  rec.objects.noteChange();
  return flow;
}

Flow reraise(RecordContext& rec, ShadowFrame&, Activation& act, const Instr& in) {
  noteRaised(rec, act.peek(1), false);
  return rec.execute(act, in);
}

// `yield from`: an exception was thrown into the inner generator. It goes on in the outer one, unless it has
// ended the inner one (StopIteration).
Flow cleanupThrow(RecordContext& rec, ShadowFrame&, Activation& act, const Instr& in) {
  if (PyErr_GivenExceptionMatches(act.peek(1), PyExc_StopIteration) != 0) {
    rec.abort(diag::Code::KTG0106, {opcodeName(in.op)});
  } else {
    noteRaised(rec, act.peek(1), false);
  }
  return rec.execute(act, in);
}

bool isMethodOfC(PyObject* method) {
  return method != nullptr && !PyFunction_Check(method) && pyapi::isMethodLike(method);
}

// `with` a lock or a file: `__enter__` is a step like any other call.
Flow enterByStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject* enter,
                 PyObject* leave) {
  pyapi::Ref<> manager = pyapi::newRef(act.peek(1));
  Shadow shadow = f.top();
  rec.guards.guardType(shadow, manager.get());
  if (!rec.snapshots.escape(shadow, manager.get())) return rec.execute(act, in);
  PyObject* args[] = {manager.get()};
  CallContext ctx(rec, f, act, in);
  ctx.of(enter, Shadow::constant(), args, &shadow, 1);
  ctx.popped = 1;
  CallModel model = modelOf(enter);
  Shadow result;
  Flow flow = model != nullptr ? model(ctx, result) : opaqueModel(ctx, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(1);
  f.push(boundMethod(rec, act.peek(2), leave, Shadow::constant(), manager.get(), shadow));
  f.push(result);
  return flow;
}

// BEFORE_WITH: pushes the bound __exit__, then what __enter__ returned.
Flow beforeWith(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  pyapi::Ref<> manager = pyapi::newRef(act.peek(1));
  Shadow shadow = f.top();
  PyTypeObject* type = Py_TYPE(manager.get());
  PyObject* enter = specialMethod(type, "__enter__");
  PyObject* leave = specialMethod(type, "__exit__");
  bool python = enter != nullptr && leave != nullptr && PyFunction_Check(enter) && PyFunction_Check(leave);
  if (!python && isMethodOfC(enter) && isMethodOfC(leave)) {
    return enterByStep(rec, f, act, in, enter, leave);
  }
  if (shadow.isValue() || !python) {
    rec.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return rec.execute(act, in);
  }
  rec.guards.guardType(shadow, manager.get());
  rec.guards.guardTypeVersion(type);
  PendingFrame pending = rec.callees.methodFrame(enter, shadow, manager.get());
  // CPython has not bound `__exit__` yet, but a snapshot names the bound method. So one is made here for its
  // shadow.
  pyapi::Ref<> stand = pyapi::steal(PyMethod_New(leave, manager.get()));
  Shadow exitMethod = boundMethod(rec, stand.get(), leave, Shadow::constant(), manager.get(), shadow);
  pending.site = rec.snapshots.callSite(in, 1, {exitMethod});
  rec.callees.expectFrame(std::move(pending));
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(1);
  PyObject* bound = act.peek(2);
  f.push(PyMethod_Check(bound) ? boundMethod(rec, bound, leave, Shadow::constant(), manager.get(), shadow)
                               : exitMethod);
  f.push(rec.callees.returned());
  return flow;
}

// LOAD_SPECIAL replaces the object by its bound method, with a null above it.
Flow loadSpecial(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  constexpr const char* kNames[] = {"__enter__", "__exit__", "__aenter__", "__aexit__"};
  const pyapi::Ref<> object = pyapi::newRef(act.peek(1));
  PyTypeObject* type = Py_TYPE(object.get());
  PyObject* function = in.arg < std::size(kNames) ? specialMethod(type, kNames[in.arg]) : nullptr;
  const Shadow shadow = f.top();
  if (function == nullptr || shadow.isValue() || !(PyFunction_Check(function) || isMethodOfC(function))) {
    rec.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return rec.execute(act, in);
  }
  rec.guards.guardType(shadow, object.get());
  rec.guards.guardTypeVersion(type);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = rec.execute(act, in);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(1);
  f.push(boundMethod(rec, act.peek(2), function, Shadow::constant(), object.get(), shadow));
  f.push(Shadow::null());
  return flow;
}

// Calls `__exit__(type, value, traceback)` while an exception is being handled.
Flow withExceptStart(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow method = f.top(in.arg != 0 ? 5 : 4);
  if (!method.isVirtual() || rec.objects.virtualOf(method).kind != VirtualKind::kMethod) {
    rec.abort(diag::Code::KTG0101, {"__exit__"});
    return rec.execute(act, in);
  }
  Virtual& v = rec.objects.virtualOf(method);
  PyObject* function = v.partObjects[0].get();
  PyObject* exception = act.peek(1);
  pyapi::Ref<> traceback = pyapi::steal(PyException_GetTraceback(exception));
  Shadow trace = tracebackOf(rec, f.top(1), exception, traceback.get());
  PyObject* args[] = {v.partObjects[1].get(), reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception,
                      traceback ? traceback.get() : Py_None};
  Shadow shadows[] = {v.parts[1], Shadow::constant(), f.top(1), trace};
  Shadow result;
  Flow flow;
  if (PyFunction_Check(function)) {
    PendingFrame pending = rec.callees.methodFrame(function, shadows[0], args[0]);
    pending.args.insert(pending.args.end(), args + 1, args + 4);
    pending.shadows.insert(pending.shadows.end(), shadows + 1, shadows + 4);
    pending.positional = 4;
    pending.site = rec.snapshots.callSite(in, 0);
    rec.callees.expectFrame(std::move(pending));
    flow = rec.execute(act, in);
    if (flow == Flow::kNext && rec.live()) result = rec.callees.returned();
  } else {
    CallContext ctx(rec, f, act, in);
    ctx.of(function, v.parts[0], args, shadows, 4);
    CallModel model = modelOf(function);
    flow = model != nullptr ? model(ctx, result) : opaqueModel(ctx, result);
  }
  if (flow == Flow::kNext && rec.live()) f.push(result);
  return flow;
}

}  // namespace

void registerExceptionRecords(RecordTable& t) {
  t[op::RAISE_VARARGS] = raise;
  t[op::RERAISE] = reraise;
  t[op::CLEANUP_THROW] = cleanupThrow;
  t[op::PUSH_EXC_INFO] = pushExcInfo;
  t[op::POP_EXCEPT] = popExcept;
  t[op::CHECK_EXC_MATCH] = checkExcMatch;
  t[op::CHECK_EG_MATCH] = checkEgMatch;
  t[op::PREP_RERAISE_STAR] = prepReraiseStar;
  t[op::BEFORE_WITH] = beforeWith;
  t[op::LOAD_SPECIAL] = loadSpecial;
  t[op::WITH_EXCEPT_START] = withExceptStart;
}

}  // namespace kintsugi::capture
