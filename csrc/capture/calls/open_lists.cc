#include "capture/calls/open_lists.h"

#include <algorithm>
#include <string_view>

#include "capture/open_values.h"
#include "pyapi/code.h"
#include "pyapi/functions.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"

#include "pyapi/plain.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

using ir::Op;

namespace {

bool isOpen(RecordContext& rec, Shadow shadow, PyObject* object) {
  return shadow.isSource() && PyList_CheckExact(object) && hasVaryingLength(rec, object);
}

bool isCalledOnOpen(const CallContext& ctx) {
  return ctx.total() > 0 && isOpen(ctx.rec, ctx.shadows[0], ctx.args[0]);
}

void forgetElements(RecordContext& rec, PyObject* list) {
  Overlay& overlay = rec.objects.makeOverlay(list);
  overlay.dirty = true;
  overlay.parts.reset();
  overlay.tail.clear();
}

// Each run asks whether the list holds only plain items, so that no Python code and no torch code compares or
// adds them. False: it holds others, or the recording has ended.
bool pinPlainItems(CallContext& ctx) {
  if (!pyapi::holdsPlain(ctx.args[0])) return false;
  ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
  return ctx.rec.guards.pinAnswerOf(pyapi::holdsPlainFunction(),
                                    {ir::Operand::source(ctx.shadows[0].sourceId())}, Py_True);
}

// True for torch's functions that join tensors and look only at these.
bool joinsTensors(PyObject* callable) {
  static constinit pyapi::Lazy<const std::unordered_set<const PyMethodDef*>*> definitionsSlot;
  const std::unordered_set<const PyMethodDef*>* definitions = definitionsSlot.get([] {
    auto* found = new std::unordered_set<const PyMethodDef*>();
    PyObject* owner = pyapi::known(torchapi::Known::kVariableFunctions);
    for (const char* name : {"stack", "cat", "concat", "concatenate", "hstack", "vstack", "dstack",
                             "row_stack", "column_stack"}) {
      pyapi::Ref<> function = pyapi::steal(owner != nullptr ? pyapi::attributeOf(owner, name) : nullptr);
      if (function && PyCFunction_Check(function.get())) found->insert(pyapi::definitionOf(function.get()));
    }
    return found;
  });
  return PyCFunction_Check(callable) && definitions->contains(pyapi::definitionOf(callable));
}

// True if the list is not empty and holds only tensors of torch's own class.
bool holdsTensors(PyObject* list) {
  if (!PyList_CheckExact(list) || PyList_GET_SIZE(list) == 0) return false;
  PyObject** items = PySequence_Fast_ITEMS(list);
  return std::all_of(items, items + PyList_GET_SIZE(list), [](PyObject* item) {
    return torchapi::isTensor(item) && torchapi::isExactTensorType(Py_TYPE(item));
  });
}

PyObject* holdsTensorsFunction() {
  static PyMethodDef definition = {
      "holds_tensors",
      [](PyObject*, PyObject* list) { return Py_NewRef(holdsTensors(list) ? Py_True : Py_False); }, METH_O,
      nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

Flow openResult(CallContext& ctx, Shadow& result) {
  Flow flow = knownModel(ctx, result);
  if (flow == Flow::kNext && ctx.rec.live() && result.isSource())
    ctx.rec.openSlices.insert(result.sourceId());
  return flow;
}

}  // namespace

std::optional<Flow> changeOpenList(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (!isCalledOnOpen(ctx) || ctx.kwnames != nullptr) return std::nullopt;
  pyapi::Ref<> list = pyapi::newRef(ctx.args[0]);
  rec.guards.guardType(ctx.shadows[0], list.get());
  for (size_t i = 1; i < ctx.total(); ++i) {
    Shadow given = ctx.shadows.any(i);
    if (!rec.snapshots.escape(given, ctx.args.any(i))) return run(ctx);
  }
  Flow flow = knownModel(ctx, result);
  if (rec.live()) forgetElements(rec, list.get());
  return flow;
}

std::optional<Flow> reduceOpenList(CallContext& ctx, Shadow& result) {
  const bool simple = isCalledOnOpen(ctx) && ctx.kwnames == nullptr &&
                      (ctx.total() == 1 || (ctx.total() == 2 && isPlain(ctx.args[1])));
  if (!simple) return std::nullopt;
  if (pinPlainItems(ctx)) return knownModel(ctx, result);
  return ctx.rec.live() ? std::nullopt : std::optional(run(ctx));
}

std::optional<Flow> copyOpenList(CallContext& ctx, Shadow& result) {
  if (!isCalledOnOpen(ctx) || ctx.total() != 1 || ctx.kwnames != nullptr) return std::nullopt;
  ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
  return openResult(ctx, result);
}

std::optional<Flow> sortOpenList(CallContext& ctx, Shadow& result) {
  if (!isCalledOnOpen(ctx)) return std::nullopt;
  for (size_t i = 1; i < ctx.total(); ++i) {  // `reverse=`
    if (!ctx.shadows.any(i).isConst() || !PyBool_Check(ctx.args.any(i))) return std::nullopt;
  }
  if (pinPlainItems(ctx)) return openResult(ctx, result);
  return ctx.rec.live() ? std::nullopt : std::optional(run(ctx));
}

std::optional<Flow> joinOpenList(CallContext& ctx, Shadow& result) {
  if (!joinsTensors(ctx.callable) || !isCalledOnOpen(ctx) || !holdsTensors(ctx.args[0])) return std::nullopt;
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 1; i < ctx.total(); ++i) {  // `dim=`, but not `out=`
    if (!isPlain(ctx.args.any(i)) || !ctx.rec.guards.pin(shadows[i], ctx.args.any(i)))
      return ctx.rec.live() ? std::nullopt : std::optional(run(ctx));
  }
  ctx.rec.guards.guardType(shadows[0], ctx.args[0]);
  if (!ctx.rec.guards.pinAnswerOf(holdsTensorsFunction(), {ir::Operand::source(shadows[0].sourceId())},
                                  Py_True))
    return run(ctx);
  ctx.shadows.replace(shadows.data());
  return ctx.rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
}

bool isOpenIterable(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (shadow.isVirtual()) {
    const Virtual& v = rec.objects.virtualOf(shadow);
    return v.kind == VirtualKind::kDictView && isOpenIterable(rec, v.parts[0], v.partObjects[0].get());
  }
  return shadow.isSource() && (rec.objects.isDirty(object) || isVaryingText(rec, shadow, object));
}

bool iteratesOpenList(RecordContext& rec, PyObject* function, Shadow iterator) {
  if (!iterator.isVirtual() || rec.objects.virtualOf(iterator).kind != VirtualKind::kIterator) return false;
  const Virtual& v = rec.objects.virtualOf(iterator);
  return isComprehension(function) && v.index == 0 && isOpenIterable(rec, v.parts[0], v.partObjects[0].get());
}

bool isComprehension(PyObject* function) {
  if (!PyFunction_Check(function)) return false;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  if (pyapi::argumentCount(code) != 1 || (pyapi::flagsOf(code) & (CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0)
    return false;
  // A comprehension's function has one argument, with a name that no program can write.
  PyObject* argument = pyapi::variableName(code, 0);
  return PyUnicode_CompareWithASCIIString(argument, ".0") == 0;
}

void openComprehension(RecordContext& rec, Shadow result) {
  if (rec.live() && result.isSource()) rec.openSlices.insert(result.sourceId());
}

std::optional<Flow> consumeOpen(CallContext& ctx, Shadow& result) {
  bool open = false;
  for (size_t i = 0; i < ctx.total(); ++i) {
    open = open || (ctx.shadows.any(i).isSource() && PyGen_CheckExact(ctx.args.any(i)) &&
                    ctx.rec.openSlices.contains(ctx.shadows.any(i).sourceId()));
  }
  if (!open) return std::nullopt;
  Flow flow = opaqueModel(ctx, result);
  if (flow == Flow::kNext) openComprehension(ctx.rec, result);
  return flow;
}

std::optional<bool> storeInOpenList(RecordContext& rec, Shadow list, PyObject* object, Shadow& key,
                                    PyObject* index, Shadow value, PyObject* real) {
  if (!isOpen(rec, list, object)) return std::nullopt;
  if (!PyLong_CheckExact(index) && !PySlice_Check(index)) return std::nullopt;
  if (PySlice_Check(index) && real != nullptr) return std::nullopt;  // `list[slice] = iterable`
  if (!rec.guards.tryPinDeep(key, index)) return rec.live() ? std::nullopt : std::optional(false);
  rec.guards.guardType(list, object);
  const std::pair<Shadow, PyObject*> at = {Shadow::constant(), index};
  const bool written = real != nullptr
                           ? rec.heap.emitEffect(Op::kSetItem, {{list, object}, at, {value, real}})
                           : rec.heap.emitEffect(Op::kDelItem, {{list, object}, at});
  if (!written) return false;
  forgetElements(rec, object);
  return rec.live();
}

}  // namespace kintsugi::capture
