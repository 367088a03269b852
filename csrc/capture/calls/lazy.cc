// Models: map and filter objects that are kept for later.
//
// Such an object consists of its function and its iterators, which `__reduce__` returns. So a polyfill can
// take its items instead: it moves the same iterators on and is recorded like any other code. The object
// itself stays as it is.
#include "capture/calls/lazy.h"

#include "capture/calls/table.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// True if the trace knows the iterators that map() or filter() will make for its arguments.
bool known(CallContext& ctx) {
  if (ctx.kwnames != nullptr || ctx.positional < 2) return false;
  for (size_t i = 1; i < ctx.positional; ++i) {
    Shadow shadow = ctx.shadows.any(i);
    if (shadow.isValue() || pythonMethod(ctx.args.any(i), "__iter__") != nullptr ||
        torchapi::isTensor(ctx.args.any(i))) {
      return false;
    }
    const bool iterator = shadow.isVirtual() && isConsumed(ctx.rec.objects.virtualOf(shadow)) &&
                          ctx.rec.objects.virtualOf(shadow).kind != VirtualKind::kDeque;
    if (!iterator && !ctx.rec.objects.iterated(shadow, ctx.args.any(i))) return false;
  }
  return ctx.rec.live();
}

}  // namespace

std::optional<Flow> lazyIteratorModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (!known(ctx)) return std::nullopt;
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.begin() + ctx.positional);
  Refs objects;
  for (size_t i = 0; i < ctx.positional; ++i) objects.push_back(pyapi::newRef(ctx.args.any(i)));
  Flow flow = runVirtual(ctx, VirtualKind::kMap, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  pyapi::Ref<> reduced = pyapi::steal(PyObject_CallMethod(ctx.act.peek(1), "__reduce__", nullptr));
  PyObject* inner = reduced ? PyTuple_GET_ITEM(reduced.get(), 1) : nullptr;
  if (inner == nullptr || PyTuple_GET_SIZE(inner) != static_cast<Py_ssize_t>(objects.size())) {
    PyErr_Clear();
    rec.abort(diag::Code::KTG0101, {pyapi::typeNameOf(ctx.act.peek(1))});
    return flow;
  }
  for (size_t i = 1; i < objects.size(); ++i) {
    PyObject* iterator = PyTuple_GET_ITEM(inner, static_cast<Py_ssize_t>(i));
    if (iterator == objects[i].get()) continue;  // the argument was an iterator already
    shadows[i] = rec.objects.newIterator(iterator, shadows[i], objects[i].get());
    objects[i] = pyapi::newRef(iterator);
  }
  rec.objects.virtualOf(result).parts = std::move(shadows);
  rec.objects.virtualOf(result).partObjects = std::move(objects);
  return flow;
}

bool itemsRunPython(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (isLazyIterator(rec, shadow)) return true;
  if (shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kGenerator) return true;
  return !shadow.isValue() && !torchapi::isTensor(object) && pythonMethod(object, "__iter__") != nullptr &&
         !PyTuple_Check(object) && !PyList_Check(object) && !PyDict_Check(object);
}

bool hasOpenLength(RecordContext& rec, Shadow shadow, PyObject* object) {
  return torchapi::isTensor(object) && !rec.torch.values().hasStaticMeta(shadow, object);
}

bool isAskedForItems(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (itemsRunPython(rec, shadow, object) || hasOpenLength(rec, shadow, object)) return true;
  if (!shadow.isVirtual()) return false;
  const VirtualKind kind = rec.objects.virtualOf(shadow).kind;
  return kind == VirtualKind::kZip || kind == VirtualKind::kEnumerate;
}

PyObject* listFunction(PyObject* iterable) {
  if (pythonMethod(iterable, "__length_hint__") != nullptr) return polyfill("list_of_hint");
  return polyfill(pythonMethod(iterable, "__len__") != nullptr ? "list_of_length" : "list_");
}

bool isLazyIterator(RecordContext& rec, Shadow shadow) {
  return shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kMap;
}

namespace {

// `map.__reduce__(m)` returns (map, (function, iterators...)).
Flow mapReduceModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (ctx.total() != 1 || !isLazyIterator(rec, ctx.shadows[0])) return opaqueModel(ctx, result);
  Shadows parts = rec.objects.virtualOf(ctx.shadows[0]).parts;
  Flow flow = run(ctx);
  if (flow != Flow::kNext || !rec.live()) return flow;
  PyObject* made = ctx.act.peek(1);
  Shadow inner = rec.objects.tupleOf(PyTuple_GET_ITEM(made, 1), std::move(parts));
  result = rec.objects.tupleOf(made, {Shadow::constant(), inner});
  return flow;
}

constexpr ModelRow kRows[] = {
    {"builtins.map.__reduce__", mapReduceModel, gives("tuple")},
    {"builtins.filter.__reduce__", mapReduceModel, gives("tuple")},
};

}  // namespace

void registerLazyModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
