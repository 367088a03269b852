// Record handlers: making, reading and changing containers.
#include <algorithm>

#include "capture/calls/lazy.h"
#include "capture/calls/model.h"
#include "capture/calls/open_lists.h"
#include "capture/handlers/handlers.h"
#include "capture/lists.h"
#include "capture/open_values.h"
#include "capture/record/fallback.h"
#include "capture/record/second_half.h"
#include "capture/record/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/dict.h"
#include "pyapi/exception_state.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/opcodes.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "torchapi/global_state.h"
#include "torchapi/tensor_desc.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

namespace {

Shadows takeTop(ShadowFrame& f, size_t n) {
  Shadows parts(f.stack.end() - static_cast<ptrdiff_t>(n), f.stack.end());
  return parts;
}

Flow buildTuple(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadows parts = takeTop(f, in.arg);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(in.arg);
  f.push(rec.objects.tupleOf(act.peek(1), std::move(parts)));
  return flow;
}

Flow buildList(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadows parts = takeTop(f, in.arg);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(in.arg);
  Shadow list = rec.objects.newVirtual(VirtualKind::kList, act.peek(1));
  rec.objects.virtualOf(list).parts = std::move(parts);
  f.push(list);
  return flow;
}

Flow buildSet(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  for (uint32_t i = 1; i <= in.arg; ++i) {
    if (!pinKey(rec, f.top(static_cast<int>(i)), act.peek(static_cast<int>(i)))) {
      if (!rec.live()) return rec.execute(act, in);
      return displayStep(rec, f, act, in, "make_set", static_cast<int>(in.arg));
    }
  }
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(in.arg);
  f.push(rec.objects.newVirtual(VirtualKind::kSet, act.peek(1)));
  return flow;
}

Flow buildMap(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  size_t n = in.arg;
  Refs keys;
  Shadows values;
  for (size_t i = 0; i < n; ++i) {
    int at = static_cast<int>(2 * (n - i));
    if (!pinKey(rec, f.top(at), act.peek(at))) {
      if (!rec.live()) return rec.execute(act, in);
      return displayStep(rec, f, act, in, "make_dict", 2 * static_cast<int>(n));
    }
    keys.push_back(pyapi::newRef(act.peek(at)));
    values.push_back(f.top(at - 1));
  }
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(2 * n);
  Shadow dict = rec.objects.newVirtual(VirtualKind::kDict, act.peek(1));
  for (size_t i = 0; i < n; ++i) rec.objects.setEntry(rec.objects.virtualOf(dict), keys[i].get(), values[i]);
  f.push(dict);
  return flow;
}

Flow buildConstKeyMap(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  size_t n = in.arg;
  pyapi::Ref<> keys = pyapi::newRef(act.peek(1));
  Shadows values(f.stack.end() - 1 - static_cast<ptrdiff_t>(n), f.stack.end() - 1);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(n + 1);
  Shadow dict = rec.objects.newVirtual(VirtualKind::kDict, act.peek(1));
  for (size_t i = 0; i < n; ++i) {
    rec.objects.setEntry(rec.objects.virtualOf(dict),
                         PyTuple_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i)), values[i]);
  }
  f.push(dict);
  return flow;
}

Flow buildSlice(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadows parts = takeTop(f, in.arg);
  parts.resize(3, Shadow::constant());
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(in.arg);
  Shadow slice = rec.objects.newVirtual(VirtualKind::kSlice, act.peek(1));
  rec.objects.virtualOf(slice).parts = std::move(parts);
  f.push(slice);
  return flow;
}

Flow listAppend(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow item = f.top();
  Shadow list = f.top(static_cast<int>(in.arg) + 1);
  Flow flow = rec.execute(act, in);
  f.drop(1);
  if (flow == Flow::kNext && list.isVirtual()) {
    rec.objects.virtualOf(list).parts.push_back(item);
    rec.objects.noteChange(list);
  }
  return flow;
}

Flow setAdd(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const Shadow set = f.top(static_cast<int>(in.arg) + 1);
  if (!pinKey(rec, f.top(), act.peek(1))) rec.abort(diag::Code::KTG0303, {"set"});
  Flow flow = rec.execute(act, in);
  f.drop(1);
  rec.objects.noteChange(set);
  return flow;
}

Flow mapAdd(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow dict = f.top(static_cast<int>(in.arg) + 2);
  if (!dict.isVirtual() || !pinKey(rec, f.top(2), act.peek(2))) {
    rec.abort(diag::Code::KTG0303, {"dict"});
    return rec.execute(act, in);
  }
  pyapi::Ref<> key = pyapi::newRef(act.peek(2));
  Shadow value = f.top(1);
  Flow flow = rec.execute(act, in);
  f.drop(2);
  if (flow == Flow::kNext) rec.objects.setEntry(rec.objects.virtualOf(dict), key.get(), value);
  return flow;
}

// True for an older iterable of which the trace knows nothing, so that each run asks it for items one by one.
bool isUnknownIterable(Shadow shadow, PyObject* object) {
  if (!shadow.isSource() || !pyapi::isIterable(object) || torchapi::isTensor(object)) return false;
  return !PyList_Check(object) && !PyTuple_Check(object) && !PyDict_Check(object) &&
         !PyAnySet_Check(object) && !PyUnicode_Check(object) && !PyBytes_Check(object) &&
         !PyRange_Check(object);
}

Flow listExtend(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow list = f.top(static_cast<int>(in.arg) + 1);
  PyObject* object = act.peek(static_cast<int>(in.arg) + 1);
  Shadow more = f.top();
  const bool open = torchapi::isTensor(act.peek(1)) || hasOpenLength(rec, more, act.peek(1));
  if (open || itemsRunPython(rec, more, act.peek(1)) || isUnknownIterable(more, act.peek(1))) {
    if (!rec.callees.listItems(f, act, in, listFunction(act.peek(1)), nullptr)) return Flow::kRaise;
    if (!rec.live()) return rec.execute(act, in);
    more = f.top();
  }
  if (!extendList(rec, list, object, more, act.peek(1))) {
    return rec.execute(act, in);
  }
  Py_ssize_t start = PyList_GET_SIZE(object);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(1);
  pairElements(rec, list, object, more, start);
  return flow;
}

Flow listToTuple(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  auto parts = rec.objects.elementsOf(f.top(), act.peek(1));
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(1);
  f.push(rec.objects.tupleOf(act.peek(1), parts ? std::move(*parts) : Shadows{}));
  return flow;
}

Flow setUpdate(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (!rec.guards.tryPinDeep(f.top(), act.peek(1))) {
    if (!PyFrozenSet_CheckExact(act.peek(1)) || !f.top().isConst()) rec.abort(diag::Code::KTG0303, {"set"});
  }
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.drop(1);
  rec.objects.noteChange();
  return flow;
}

// DICT_UPDATE, DICT_MERGE: adds the entries of another mapping to a dict that the trace has made.
Flow dictUpdate(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow dict = f.top(static_cast<int>(in.arg) + 1);
  PyObject* more = act.peek(1);
  bool ok = dict.isVirtual() && PyDict_Check(more) && !f.top().isValue() && rec.objects.plainDict(more);
  auto values = ok ? rec.objects.dictParts(f.top(), more, 1) : std::nullopt;
  pyapi::Ref<> keys = pyapi::steal(values ? PySequence_List(more) : nullptr);
  if (!values || !keys) {
    PyErr_Clear();
    rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(more)});
    return rec.execute(act, in);
  }
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(1);
  for (size_t i = 0; i < values->size(); ++i) {
    rec.objects.setEntry(rec.objects.virtualOf(dict), PyList_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i)),
                         (*values)[i]);
  }
  return flow;
}

Flow finishSubscr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, Shadow result) {
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(2);
  f.push(result);
  return flow;
}

// Subscripts a list that each run has to ask. A slice of a list of open length has an open length, too.
Flow dirtySubscr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const bool slice = PySlice_Check(act.peek(1)) && hasVaryingLength(rec, act.peek(2));
  rec.guards.guardType(f.top(2), act.peek(2));
  Flow flow = operatorStep(rec, f, act, in, "getitem", 2, true);
  if (flow == Flow::kNext && rec.live() && slice && f.top().isSource())
    rec.openSlices.insert(f.top().sourceId());
  return flow;
}

// True for a run-time index into an older sequence whose items are all alike: tensors (a ring of buffers), or
// plain values of one type. Each run makes such a look-up again. If the items are different kinds of objects
// (modules, functions), what follows depends on the index, so it is pinned instead.
bool isLookUpOfRun(ShadowFrame& f, PyObject* sequence, PyObject* index) {
  if (!f.top(1).isValue() || !f.top(2).isSource() || !PyLong_CheckExact(index)) return false;
  if (!PyList_CheckExact(sequence) && !PyTuple_CheckExact(sequence)) return false;
  PyObject** items = PySequence_Fast_ITEMS(sequence);
  const Py_ssize_t count = Py_SIZE(sequence);
  return count > 0 && std::all_of(items, items + count, [first = items[0]](PyObject* item) {
           return Py_TYPE(item) == Py_TYPE(first) &&
                  (isPlain(item) || (torchapi::isTensor(item) && torchapi::isExactTensorType(Py_TYPE(item))));
         });
}

Flow sequenceSubscr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  pyapi::Ref<> sequence = pyapi::newRef(act.peek(2));
  PyObject* index = act.peek(1);
  Shadow shadow = f.top(2);
  Py_ssize_t n = Py_SIZE(sequence.get());
  if (rec.objects.isDirty(sequence.get()) || isLookUpOfRun(f, sequence.get(), index))
    return dirtySubscr(rec, f, act, in);
  if (PyLong_Check(index)) {
    if (!rec.guards.pin(f.top(1), index)) return rec.execute(act, in);
    Py_ssize_t at = PyLong_AsSsize_t(index);
    PyErr_Clear();
    if ((at < 0 || at >= n) && !rec.guards.pinLength(shadow, sequence.get())) return rec.execute(act, in);
    if (at < 0) at += n;
    auto item = at >= 0 && at < n ? rec.objects.elementOf(shadow, sequence.get(), at) : Shadow::constant();
    if (!item) rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(sequence.get())});
    return finishSubscr(rec, f, act, in, item.value_or(Shadow::constant()));
  }
  if (!PySlice_Check(index) || !hasNumberBounds(index) || !rec.guards.pinDeep(f.top(1), index)) {
    if (rec.live()) return operatorStep(rec, f, act, in, "getitem", 2, true);
    return rec.execute(act, in);
  }
  auto parts = rec.objects.elementsOf(shadow, sequence.get());
  Py_ssize_t start, stop, step;
  if (!parts || PySlice_Unpack(index, &start, &stop, &step) < 0) {
    PyErr_Clear();
    rec.abort(diag::Code::KTG0303, {"slice"});
    return rec.execute(act, in);
  }
  Py_ssize_t count = PySlice_AdjustIndices(n, &start, &stop, step);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  f.drop(2);
  Shadows taken;
  for (Py_ssize_t i = 0; i < count; ++i) taken.push_back((*parts)[start + i * step]);
  PyObject* result = act.peek(1);
  if (PyTuple_Check(result)) {
    bool sizes = !PyTuple_CheckExact(result) && isPlainTuple(result) && shadow.isConst();
    f.push(sizes ? Shadow::constant() : rec.objects.tupleOf(result, std::move(taken)));
  } else {
    Shadow list = rec.objects.newVirtual(VirtualKind::kList, result);
    rec.objects.virtualOf(list).parts = std::move(taken);
    f.push(list);
  }
  return flow;
}

// A tensor as a key is found by its identity. If the trace named the tensor, it would keep it alive and work
// for this tensor only. So each run makes the look-up again, by the polyfill that is returned here.
const char* tensorLookUp(PyObject* dict) {
  if (pyapi::isDefaultDict(Py_TYPE(dict))) return "tensor_default_item";
  const bool simple = PyDict_CheckExact(dict) || specialMethod(Py_TYPE(dict), "__missing__") == nullptr;
  return simple ? "tensor_item" : nullptr;
}

// `dict[tensor] = value`, in a dict that is older than the trace.
bool storeUnderTensor(RecordContext& rec, ShadowFrame& f, Activation& act) {
  PyObject *key = act.peek(1), *dict = act.peek(2), *value = act.peek(3);
  if (f.top(2).isVirtual() || f.top(1).isVirtual() || !rec.objects.plainDict(dict)) return false;
  const Shadow target = Shadow::source(rec.guards.sourceOf(f.top(2), dict));
  rec.guards.guardType(target, dict);
  if (!rec.heap.emitEffect(ir::Op::kSetItem, {{target, dict}, {f.top(1), key}, {f.top(3), value}}))
    return false;
  Overlay& overlay = rec.objects.makeOverlay(dict);
  if (!overlay.fresh) overlay.fresh = pyapi::steal(PyDict_New());  // the length is not known any more
  return rec.live();
}

// True if each run has to ask the dict: the key varies, or something was stored under such a one before.
bool isAskedEachRun(RecordContext& rec, Shadow shadow, PyObject* dict, Shadow key, PyObject* object) {
  if (!shadow.isSource() || !PyDict_CheckExact(dict)) return false;
  const Overlay* overlay = rec.objects.overlayOf(dict);
  const bool asked = isVaryingLookUp(rec, key, object, dict) ||
                     (overlay != nullptr && overlay->dirty && isPlainDeep(object));
  if (asked) rec.guards.guardType(shadow, dict);
  return asked;
}

// `dict[key] = value`, where the key varies. Any entry of the dict may have changed, so it is dirty.
bool storeUnderVarying(RecordContext& rec, ShadowFrame& f, Activation& act) {
  PyObject *key = act.peek(1), *dict = act.peek(2), *value = act.peek(3);
  rec.guards.guardType(f.top(2), dict);
  rec.guards.guardType(f.top(1), key);
  if (!rec.heap.emitEffect(ir::Op::kSetItem, {{f.top(2), dict}, {f.top(1), key}, {f.top(3), value}}))
    return false;
  rec.objects.makeOverlay(dict).dirty = true;
  return rec.live();
}

// `del dict[key]`, where the key varies, or something was stored under such a one before. The key is there in
// this call; a run in which it is not is left in front of the instruction, which then raises.
bool deleteUnderVarying(RecordContext& rec, ShadowFrame& f, Activation& act) {
  PyObject *key = act.peek(1), *dict = act.peek(2);
  if (!PyDict_CheckExact(dict) || !f.top(2).isSource() || pyapi::needsProgram(dict, key)) return false;
  const Overlay* overlay = rec.objects.overlayOf(dict);
  const bool varies = isVaryingKey(rec, f.top(1), key);
  if (!varies && (overlay == nullptr || !overlay->dirty || !isPlainDeep(key))) return false;
  if (PyDict_Contains(dict, key) != 1 || !rec.heap.canLeave()) return false;
  rec.guards.guardType(f.top(2), dict);
  if (varies) {
    rec.guards.guardType(f.top(1), key);
  } else if (!pinKey(rec, f.top(1), key)) {
    return false;
  }
  if (!rec.heap.emitEffect(ir::Op::kDelItem, {{f.top(2), dict}, {f.top(1), key}})) return false;
  rec.objects.makeOverlay(dict).dirty = true;
  return rec.live();
}

Flow dictSubscr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *dict = act.peek(2), *key = act.peek(1);
  if (isAskedEachRun(rec, f.top(2), dict, f.top(1), key))
    return operatorStep(rec, f, act, in, "getitem", 2, true);
  if (torchapi::isTensor(key) && !f.top(1).isVirtual() && !f.top(2).isVirtual()) {
    PyObject* lookUp = tensorLookUp(dict) != nullptr ? polyfill(tensorLookUp(dict)) : nullptr;
    if (lookUp != nullptr) return rec.callees.callInPlace(f, act, in, lookUp, 2);
  }
  if (pyapi::needsProgram(dict, key)) {
    const CallKind kind = PyDict_CheckExact(dict) ? CallKind::kKnown : CallKind::kOpaque;
    return operatorStep(rec, f, act, in, "getitem", 2, true, kind);
  }
  if (!pinKey(rec, f.top(1), key)) {
    if (rec.live()) return operatorStep(rec, f, act, in, "getitem", 2, true);
    return rec.execute(act, in);
  }
  PyObject* value = PyDict_GetItemWithError(dict, key);
  PyErr_Clear();
  if (value == nullptr) {
    PyObject* method = PyDict_CheckExact(dict) ? nullptr : specialMethod(Py_TYPE(dict), "__missing__");
    if (method != nullptr && PyFunction_Check(method)) {
      rec.heap.lacksKey(f.top(2), dict, key);
      return rec.live() ? rec.callees.callInPlace(f, act, in, method, 2) : rec.execute(act, in);
    }
    if (polyfill("default_item") != nullptr && pyapi::isDefaultDict(Py_TYPE(dict))) {
      rec.heap.lacksKey(f.top(2), dict, key);
      return rec.live() ? rec.callees.callInPlace(f, act, in, polyfill("default_item"), 2)
                        : rec.execute(act, in);
    }
    if (method != nullptr) {  // C code that may run Python code, or add an entry
      return operatorStep(rec, f, act, in, "getitem", 2, true, CallKind::kOpaque);
    }
    rec.heap.lacksKey(f.top(2), dict, key);
    return finishSubscr(rec, f, act, in, Shadow::constant());
  }
  return finishSubscr(rec, f, act, in, rec.objects.dictEntry(f.top(2), dict, key, value));
}

// collections.abc.Callable. Subscripting it (`Callable[[int], str]`) runs Python code of the standard
// library.
bool isCallableType(PyObject* type) {
  PyObject* abc = pyapi::loadedNamespace("_collections_abc");
  return abc != nullptr && type == PyDict_GetItemString(abc, "Callable");
}

// True for a tensor, and for a sequence of tensors, or of tensors and ints.
bool areIndices(PyObject* index) {
  if (torchapi::isTensor(index)) return true;
  if (!PyTuple_CheckExact(index) && !PyList_CheckExact(index)) return false;
  PyObject** items = PySequence_Fast_ITEMS(index);
  PyObject** end = items + Py_SIZE(index);
  return std::any_of(items, end, torchapi::isTensor) && std::all_of(items, end, [](PyObject* item) {
           return torchapi::isTensor(item) || PyLong_Check(item);
         });
}

// True if torch, in one of these frames, takes an index tensor as it is. Elsewhere the index tensor is asked
// for its value.
bool indexesByTensors(const ShadowFrame* frame, PyObject* index) {
  if (!areIndices(index)) return false;
  for (; frame != nullptr; frame = frame->caller) {
    if (pyapi::isKnownCode(frame->code, pyapi::CodeFamily::kIndexesByTensors)) return true;
  }
  return false;
}

// True for `tensor[n]` with a run-time number, where the comparisons of the polyfill may be guards.
bool selectsAtRunTime(RecordContext& rec, const ShadowFrame& f, Activation& act) {
  PyObject *tensor = act.peek(2), *index = act.peek(1);
  if (!f.stack.back().isValue() || !PyLong_CheckExact(index) || pyapi::isPolyfill(f.code)) return false;
  if (!torchapi::isExactTensorType(Py_TYPE(tensor)) || torchapi::hasModes() || torchapi::transformsActive())
    return false;
  const ir::TensorDesc desc = torchapi::describe(tensor);
  return desc.plain && !desc.sizes.empty() && rec.trace().states[rec.snapshots.stateBefore()].rebuildable;
}

Flow binarySubscr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* container = act.peek(2);
  if (torchapi::isTensor(container) && indexesByTensors(&f, act.peek(1)))
    return rec.callees.callInPlace(f, act, in, polyfill("index_by_tensors"), 2);
  if (torchapi::isTensor(container) && selectsAtRunTime(rec, f, act))
    return rec.callees.callInPlace(f, act, in, polyfill("select_at"), 2);
  Shadow shadow = f.top(2);
  if (torchapi::isTensor(container)) return operatorStep(rec, f, act, in, "getitem", 2, true);
  PyObject* method = pythonMethod(container, "__getitem__");
  if (method != nullptr) return methodStep(rec, f, act, in, method, {2, 1}, true);
  if (!shadow.isValue() && (PyTuple_Check(container) || PyList_Check(container)))
    return sequenceSubscr(rec, f, act, in);
  if (!shadow.isValue() && PyDict_Check(container) && rec.objects.plainDict(container))
    return dictSubscr(rec, f, act, in);
  if (shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kDeque &&
      PyLong_CheckExact(act.peek(1)) && rec.guards.pin(f.top(1), act.peek(1))) {
    const auto& parts = rec.objects.virtualOf(shadow).parts;
    const auto n = static_cast<Py_ssize_t>(parts.size());
    Py_ssize_t at = PyLong_AsSsize_t(act.peek(1));
    PyErr_Clear();
    if (at < 0) at += n;
    const bool there = at >= 0 && at < n;  // else the run raises IndexError
    return finishSubscr(rec, f, act, in, there ? parts[static_cast<size_t>(at)] : Shadow::constant());
  }
  if (shadow.isConst() && rec.guards.isFrozen(container) && rec.guards.tryPinDeep(f.top(1), act.peek(1))) {
    Flow flow = rec.execute(act, in);
    if (flow != Flow::kNext || !rec.live()) return flow;
    f.drop(2);
    f.push(frozenPart(rec, act.peek(1)));
    return flow;
  }
  bool immutable =
      PyUnicode_CheckExact(container) || PyBytes_CheckExact(container) || PyRange_Check(container);
  if (immutable && !rec.guards.comesFromStep(shadow) && rec.guards.tryPinDeep(f.top(1), act.peek(1))) {
    return pinAndRun(rec, f, act, in, 2);
  }
  if (PyType_Check(container) && rec.guards.tryPinDeep(f.top(1), act.peek(1)) &&
      rec.guards.pin(f.top(2), container)) {
    std::optional<Paused> paused;  // for `list[int]` and the like
    if (isCallableType(container)) paused.emplace(rec.pauses);
    Flow flow = rec.execute(act, in);
    if (flow != Flow::kNext || !rec.live()) return flow;
    f.drop(2);
    f.push(Shadow::constant());
    return flow;
  }
  if (!rec.live()) return rec.execute(act, in);
  return operatorStep(rec, f, act, in, "getitem", 2, true);
}

// `x[a:b]` is two instructions in one: the slice is made, and then it is used as an index.
template <uint8_t kSecond>
Flow bySlice(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const SecondHalf half(rec, f, act);
  Instr build = in;
  build.op = op::BUILD_SLICE;
  build.arg = 2;
  build.run = handlerOf(build.op);
  const Flow flow = buildSlice(rec, f, act, build);
  if (flow != Flow::kNext) return flow;
  Instr second = in;
  second.op = kSecond;
  second.run = handlerOf(second.op);
  return half.run(second);
}

// The container is no dict or list (an array of numpy, a bytearray), or a dict that asks Python code which
// key it is: records a call of operator.setitem (3 arguments) or operator.delitem (2).
Flow changeByStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, size_t count) {
  PyObject* args[] = {act.peek(2), act.peek(1), count == 3 ? act.peek(3) : nullptr};
  Shadow shadows[] = {f.top(2), f.top(1), count == 3 ? f.top(3) : Shadow::null()};
  if (shadows[2].isVirtual() && !rec.snapshots.escape(shadows[2], args[2]))
    return rec.execute(act, in);  // the step may keep the value
  const char* name = count == 3 ? "setitem" : "delitem";
  pyapi::Ref<> operators = pyapi::steal(pyapi::importModule("_operator"));
  pyapi::Ref<> callable = pyapi::steal(PyObject_GetAttrString(operators.get(), name));
  CallContext ctx(rec, f, act, in);
  ctx.of(callable.get(), Shadow::constant(), args, shadows, count);
  ctx.pushes = false;
  ctx.popped = count;
  Shadow ignored;
  const bool asks = PyDict_Check(args[0]);  // which runs Python code
  const CallKind kind = asks ? CallKind::kOpaque : rec.steps.stepKind(args[0]);
  Flow flow = rec.steps.callStep(ctx, kind, kind == CallKind::kOpaque ? name : nullptr, ignored);
  if (flow == Flow::kNext && rec.live()) f.drop(count);
  return flow;
}

bool asksProgram(PyObject* container, PyObject* key) {
  return PyDict_Check(container) && !torchapi::isTensor(key) && pyapi::needsProgram(container, key);
}

// STORE_SUBSCR. Stack: value, container, key.
Flow storeSubscr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *key = act.peek(1), *container = act.peek(2), *value = act.peek(3);
  Shadow shadow = f.top(2);
  if (torchapi::isTensor(container)) {
    PyObject* args[] = {container, key, value};
    Shadow shadows[] = {f.top(2), f.top(1), f.top(3)};
    return tensorStore(rec, f, act, in, args, shadows);
  }
  if (PyObject* method = pythonMethod(container, "__setitem__")) {
    return methodStep(rec, f, act, in, method, {2, 1, 3}, true, false);
  }
  if (asksProgram(container, key)) return changeByStep(rec, f, act, in, 3);
  bool ok = false;
  if (PyDict_Check(container) && torchapi::isTensor(key) && !shadow.isValue()) {
    ok = storeUnderTensor(rec, f, act);
  } else if (isVaryingKey(rec, f.top(1), key) && PyDict_CheckExact(container) && shadow.isSource() &&
             !pyapi::needsProgram(container, key)) {
    ok = storeUnderVarying(rec, f, act);
  } else if (PyDict_Check(container) && !shadow.isValue()) {
    ok = pinKey(rec, f.top(1), key) && rec.heap.storeItem(shadow, container, key, f.top(3), value);
  } else if (auto stored = storeInOpenList(rec, shadow, container, f.top(1), key, f.top(3), value)) {
    ok = *stored;
  } else if (PyList_Check(container) && PyLong_CheckExact(key) && rec.guards.pin(f.top(1), key)) {
    ok = storeElement(rec, shadow, container, PyLong_AsSsize_t(key), f.top(3), value);
  } else if (PyList_Check(container) && PySlice_Check(key)) {
    ok = storeSlice(rec, shadow, container, f.top(1), key, f.top(3), value);
  }
  if (!ok && rec.live() && !PyDict_Check(container) && !PyList_Check(container)) {
    return changeByStep(rec, f, act, in, 3);
  }
  if (!ok) {
    rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
    return rec.execute(act, in);
  }
  std::optional<Paused> paused;  // Tensor.__hash__ is Python code
  if (torchapi::isTensor(key)) paused.emplace(rec.pauses);
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.drop(3);
  return flow;
}

Flow deleteSubscr(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *key = act.peek(1), *container = act.peek(2);
  if (pythonMethod(container, "__delitem__") == nullptr && asksProgram(container, key))
    return changeByStep(rec, f, act, in, 2);
  auto deleted = storeInOpenList(rec, f.top(2), container, f.top(1), key, Shadow::null(), nullptr);
  if (deleted ? *deleted
              : deleteElements(rec, f.top(2), container, f.top(1), key) || deleteUnderVarying(rec, f, act)) {
    Flow flow = rec.execute(act, in);
    if (flow == Flow::kNext) f.drop(2);
    return flow;
  }
  bool ok = rec.live() && PyDict_Check(container) && rec.objects.plainDict(container) &&
            pinKey(rec, f.top(1), key) && rec.heap.deleteItem(f.top(2), container, key);
  if (!ok) rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.drop(2);
  return flow;
}

}  // namespace

void registerContainerRecords(RecordTable& t) {
  t[op::BUILD_TUPLE] = buildTuple;
  t[op::BUILD_LIST] = buildList;
  t[op::BUILD_SET] = buildSet;
  t[op::BUILD_MAP] = buildMap;
  t[op::BUILD_CONST_KEY_MAP] = buildConstKeyMap;
  t[op::BUILD_SLICE] = buildSlice;
  t[op::LIST_APPEND] = listAppend;
  t[op::SET_ADD] = setAdd;
  t[op::MAP_ADD] = mapAdd;
  t[op::LIST_EXTEND] = listExtend;
  t[op::LIST_TO_TUPLE] = listToTuple;
  t[op::SET_UPDATE] = setUpdate;
  t[op::DICT_UPDATE] = t[op::DICT_MERGE] = dictUpdate;
  t[op::BINARY_SUBSCR] = binarySubscr;
  t[op::STORE_SUBSCR] = storeSubscr;
  t[op::DELETE_SUBSCR] = deleteSubscr;
  t[op::BINARY_SLICE] = bySlice<op::BINARY_SUBSCR>;
  t[op::STORE_SLICE] = bySlice<op::STORE_SUBSCR>;
}

}  // namespace kintsugi::capture
