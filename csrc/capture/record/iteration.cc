// Record handlers: iterators, generators, unpacking.
#include "capture/calls/lazy.h"
#include "capture/calls/model.h"
#include "capture/calls/open_lists.h"
#include "capture/handlers/handlers.h"
#include "capture/record/fallback.h"
#include "capture/record/table.h"
#include "pyapi/code.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

bool iteratesItself(PyObject* object) { return pyapi::isOwnIterator(object) || PyGen_CheckExact(object); }

// Pins the number of items; the container keeps its shadow. False: the recording has ended.
bool pinIterable(RecordContext& rec, Shadow& shadow, PyObject* object) {
  if (PyTuple_Check(object) || PyList_Check(object)) return rec.guards.pinLength(shadow, object);
  return rec.objects.iterated(shadow, object).has_value() || !rec.live();
}

// Iterates over an unknown object by a polyfill, a generator function that asks for one item at a time.
Flow iterateBy(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, const char* name) {
  PyObject* function = polyfill(name);
  if (function == nullptr || !rec.live()) {
    rec.abort(diag::Code::KTG0101, {"iter"});
    return rec.execute(act, in);
  }
  rec.callees.expectFrame(rec.callees.methodFrame(function, f.top(), act.peek(1)));
  pyapi::Ref<> made = pyapi::steal(PyObject_CallOneArg(function, act.peek(1)));
  if (!made) {
    PyErr_Clear();
    rec.abort(diag::Code::KTG0101, {"iter"});
    return rec.execute(act, in);
  }
  if (rec.live()) f.top() = rec.callees.frameResult(made.get());
  pyapi::Ref<> iterable = pyapi::steal(std::exchange(act.peek(1), made.release()));
  return rec.execute(act, in);  // iter() of a generator is the generator itself
}

// True for an iterator that is older than the trace, or that has escaped.
bool isUnknownIterator(RecordContext& rec, Shadow shadow) {
  if (!shadow.isVirtual()) return true;
  const Virtual& v = rec.objects.virtualOf(shadow);
  return v.kind == VirtualKind::kOpaque || v.value != ir::kNone;
}

bool hasPythonItems(PyObject* object) {
  return !pyapi::isIterable(object) && pythonMethod(object, "__getitem__") != nullptr;
}

// `delegates`: the iterator is for `yield from`, which passes on what is sent and thrown, and closes it.
Flow iteratorOf(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, bool delegates) {
  pyapi::Ref<> object = pyapi::newRef(act.peek(1));
  Shadow shadow = f.top();
  if (torchapi::isTensor(object.get())) {
    f.top() = shadow = rec.guards.tensorShadow(object.get(), shadow);
  }
  rec.guards.guardType(shadow, object.get());  // decides how to iterate
  PyObject* method = pythonMethod(object.get(), "__iter__");
  if (method != nullptr) return methodStep(rec, f, act, in, method, {1}, true);
  if (hasPythonItems(object.get())) {
    rec.guards.guardTypeVersion(Py_TYPE(object.get()));
    return iterateBy(rec, f, act, in, "by_index");
  }
  if (isLazyIterator(rec, shadow)) {
    const bool map = Py_TYPE(object.get()) == &PyMap_Type;
    return iterateBy(rec, f, act, in, delegates ? "delegate" : map ? "items_of_map" : "items_of_filter");
  }
  if (iteratesItself(object.get())) {
    if (!isUnknownIterator(rec, shadow)) return rec.execute(act, in);
    return iterateBy(rec, f, act, in, delegates ? "delegate" : "iterate");
  }
  if (!pyapi::isIterable(object.get()) && !PySequence_Check(object.get()))
    return rec.execute(act, in);  // the run raises TypeError
  // The iterator of a comprehension over an iterable of open length. The whole comprehension will be a step.
  const bool open = act.stackDepth() > 1 && act.peek(2) != nullptr && isComprehension(act.peek(2)) &&
                    callAfter(*act.code, in).op == op::CALL && isOpenIterable(rec, shadow, object.get());
  if (!open && (shadow.isValue() || !pinIterable(rec, shadow, object.get())))
    return iterateBy(rec, f, act, in, delegates ? "delegate" : "iterate_over");
  if (!rec.live()) return rec.execute(act, in);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(1);
  f.push(rec.objects.newIterator(act.peek(1), shadow, object.get(), !open));
  return flow;
}

Flow getIter(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  return iteratorOf(rec, f, act, in, false);
}

Flow forIter(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow iterator = f.top();
  pyapi::Ref<> object = pyapi::newRef(act.peek(1));
  PyObject* next = pythonMethod(object.get(), "__next__");
  bool python = next != nullptr;
  if (python) {
    PendingFrame pending = rec.callees.methodFrame(next, iterator, object.get());
    pending.site = rec.snapshots.callSite(in, 0, {}, ir::ReturnAction::kIterate);
    rec.guards.guardType(iterator, object.get());
    rec.guards.guardTypeVersion(Py_TYPE(object.get()));
    rec.callees.expectFrame(std::move(pending));
  } else if (!rec.objects.prepareNext(iterator,
                                      rec.snapshots.callSite(in, 0, {}, ir::ReturnAction::kIterate))) {
    return rec.execute(act, in);
  }
  int32_t before = act.stackDepth();
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  if (act.stackDepth() < before) {  // exhausted
    f.drop(1);
    return flow;
  }
  auto item =
      python ? std::optional<Shadow>(rec.callees.returned()) : rec.objects.advance(iterator, act.peek(1));
  if (!item) rec.abort(diag::Code::KTG0101, {"next"});
  f.push(item.value_or(Shadow::constant()));
  return flow;
}

Flow unpackSequence(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* object = act.peek(1);
  Shadow shadow = f.top();
  int n = static_cast<int>(in.arg);
  if (torchapi::isTensor(object)) return rec.torch.torchSequence(act, in, n);
  if (isAskedForItems(rec, shadow, object)) {
    pyapi::Ref<> limit = pyapi::steal(PyLong_FromLong(n));
    if (!rec.callees.listItems(f, act, in, polyfill("first_items"), limit.get())) return Flow::kRaise;
    if (!rec.live()) return rec.execute(act, in);
    object = act.peek(1);
    shadow = f.top();
  }
  auto parts = shadow.isValue() ? std::nullopt : rec.objects.iterated(shadow, object);
  if (!parts) {
    rec.abort(diag::Code::KTG0101, {"unpacking"});
    return rec.execute(act, in);
  }
  pyapi::Ref<> alive = pyapi::newRef(object);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  bool view = shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kDictView &&
              rec.objects.virtualOf(shadow).index == 2;
  f.drop(1);
  for (int i = n - 1; i >= 0; --i) {
    Shadow part = (*parts)[i];
    PyObject* item = act.peek(1 + i);
    f.push(view ? rec.objects.tupleOf(item, {Shadow::constant(), part}) : part);
  }
  return flow;
}

Flow unpackEx(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* object = act.peek(1);
  if (torchapi::isTensor(object)) {
    return rec.torch.torchSequence(act, in, static_cast<int>(in.arg & 0xff), static_cast<int>(in.arg >> 8));
  }
  if (isAskedForItems(rec, f.top(), object)) {
    if (!rec.callees.listItems(f, act, in, polyfill("list_"), nullptr)) return Flow::kRaise;
    if (!rec.live()) return rec.execute(act, in);
    object = act.peek(1);
  }
  Shadow iterable = f.top();
  auto parts = iterable.isValue() ? std::nullopt : rec.objects.iterated(iterable, object);
  if (!parts) {
    rec.abort(diag::Code::KTG0101, {"unpacking"});
    return rec.execute(act, in);
  }
  size_t before = in.arg & 0xff, after = in.arg >> 8;
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(1);
  size_t middle = parts->size() - before - after;
  PyObject* rest = act.peek(static_cast<int>(before) + 1);
  // The stack has the items in turn, with the list in the middle.
  for (size_t i = 0; i < parts->size(); ++i) {
    bool inList = i >= before && i < before + middle;
    size_t behind = i < before ? 1 + i : 2 + i - middle;
    PyObject* item = inList ? PyList_GET_ITEM(rest, static_cast<Py_ssize_t>(i - before))
                            : act.peek(static_cast<int>(behind));
    (*parts)[i] = rec.objects.itemOf(iterable, (*parts)[i], item);
  }
  for (size_t i = 0; i < after; ++i) f.push((*parts)[parts->size() - 1 - i]);
  Shadow list = rec.objects.newVirtual(VirtualKind::kList, act.peek(static_cast<int>(before) + 1));
  rec.objects.virtualOf(list).parts.assign(parts->begin() + static_cast<ptrdiff_t>(before),
                                           parts->begin() + static_cast<ptrdiff_t>(before + middle));
  f.push(list);
  for (size_t i = before; i-- > 0;) f.push((*parts)[i]);
  return flow;
}

Flow yieldValue(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  rec.expected.setResult(f.pop());
  return rec.execute(act, in);
}

Flow getYieldFromIter(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (PyGen_CheckExact(act.peek(1))) return rec.execute(act, in);
  return iteratorOf(rec, f, act, in, true);
}

// `yield from`: asks the inner iterator for its next item.
Flow send(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow iterator = f.top(2);
  bool generator = iterator.isVirtual() && rec.objects.virtualOf(iterator).kind == VirtualKind::kGenerator;
  if ((act.peek(1) != Py_None && !generator) ||
      !rec.objects.prepareNext(iterator, rec.snapshots.callSite(in, 1, {}, ir::ReturnAction::kDelegate))) {
    rec.abort(diag::Code::KTG0101, {"send"});
    return rec.execute(act, in);
  }
  if (generator) rec.expected.pending().shadows = {f.top(1)};
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(1);
  if (act.pc != in.target) {
    auto item = rec.objects.advance(iterator, act.peek(1));
    if (!item) rec.abort(diag::Code::KTG0101, {"send"});
    f.push(item.value_or(Shadow::constant()));
  } else {
    if (in.op == op::SEND_AND_DROP) f.drop(1);
    f.push(generator ? rec.callees.returned() : Shadow::constant());
  }
  return flow;
}

Flow endSend(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  f.top(2) = f.top();
  f.drop(1);
  return rec.execute(act, in);
}

// An exception leaves a generator. Only StopIteration (and StopAsyncIteration) is replaced by another
// exception.
Flow stopIterationError(RecordContext& rec, ShadowFrame&, Activation& act, const Instr& in) {
  const bool replaced = PyErr_GivenExceptionMatches(act.peek(1), PyExc_StopIteration) != 0 ||
                        PyErr_GivenExceptionMatches(act.peek(1), PyExc_StopAsyncIteration) != 0;
  if (replaced) rec.abort(diag::Code::KTG0106, {opcodeName(in.op)});
  return rec.execute(act, in);
}

}  // namespace

void registerIterationRecords(RecordTable& t) {
  t[op::GET_ITER] = getIter;
  t[op::FOR_ITER] = forIter;
  t[op::UNPACK_SEQUENCE] = unpackSequence;
  t[op::UNPACK_EX] = unpackEx;
  t[op::YIELD_VALUE] = yieldValue;
  t[op::GET_YIELD_FROM_ITER] = getYieldFromIter;
  t[op::SEND] = t[op::SEND_AND_DROP] = send;
  t[op::END_SEND] = endSend;
  t[op::STOPITERATION_ERROR] = stopIterationError;
}

}  // namespace kintsugi::capture
