// Models: sum(), list() and tuple() of objects whose items Python code makes.
#include "capture/calls/argument_iterator.h"
#include "pyapi/order.h"

namespace kintsugi::capture {

namespace {

// list(x) first asks for the length of x, as a hint.
bool askLength(CallContext& ctx) {
  RecordContext& rec = ctx.rec;
  PyObject* object = ctx.args[0];
  if (pythonMethod(object, "__length_hint__") != nullptr) {
    rec.abort(diag::Code::KTG0101, {"__length_hint__"});
  }
  if (PyObject* method = pythonMethod(object, "__len__")) {
    PendingFrame pending = rec.callees.methodFrame(method, ctx.shadows[0], object);
    pending.rebuildable = false;
    rec.callees.expectFrame(std::move(pending));
  }
  return PyObject_LengthHint(object, 8) >= 0;
}

}  // namespace

// `list(x)`, `tuple(x)` where the class of x has an `__iter__` in Python.
Flow iterableObject(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  bool tuple = ctx.callable == reinterpret_cast<PyObject*>(&PyTuple_Type);
  if (!tuple && ctx.callable != reinterpret_cast<PyObject*>(&PyList_Type)) return opaqueModel(ctx, result);
  ArgumentIterator items(ctx, 0);
  pyapi::Ref<> made = pyapi::steal(PyList_New(0));
  Shadows parts;
  const bool asks = !tuple || pyapi::tupleAsksLength();
  if (!items.begin() || (asks && !askLength(ctx))) return items.raise();
  while (items.next()) {
    if (PyList_Append(made.get(), items.item()) < 0) return items.raise();
    parts.push_back(items.shadow());
  }
  if (items.failed()) return items.raise();
  if (tuple) made = pyapi::steal(PyList_AsTuple(made.get()));
  if (rec.live()) {
    if (tuple) {
      result = rec.objects.tupleOf(made.get(), std::move(parts));
    } else {
      result = rec.objects.newVirtual(VirtualKind::kList, made.get());
      rec.objects.virtualOf(result).parts = std::move(parts);
    }
  }
  return rec.steps.replaceCall(ctx, std::move(made));
}

// `sum(generator)`: the additions are recorded between the generator's own operations.
Flow sumModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (auto flow = iterateInstead(ctx, "sum_", result)) return *flow;
  ArgumentIterator items(ctx, 0);
  if (ctx.kwnames != nullptr && !ctx.keyword("start")) return opaqueModel(ctx, result);
  Shadow sum = ctx.total() == 2 ? ctx.shadows.any(1) : Shadow::constant();
  bool number = ctx.total() == 1 || PyLong_CheckExact(ctx.args.any(1)) || torchapi::isTensor(ctx.args.any(1));
  if (ctx.total() > 2 || !number || !items.runsPythonCode()) return reduceModel(ctx, result, true);
  pyapi::Ref<> total = ctx.total() == 2 ? pyapi::newRef(ctx.args.any(1)) : pyapi::steal(PyLong_FromLong(0));
  if (torchapi::isTensor(total.get())) sum = rec.guards.tensorShadow(total.get(), sum);
  ir::StateId snap = rec.live() ? rec.snapshots.stateBefore() : ir::kNone;
  while (items.next()) {
    PyObject* item = items.item();
    Shadow shadow = items.shadow();
    bool tensors = torchapi::isTensor(item) || torchapi::isTensor(total.get());
    if (rec.live() && tensors) {
      if (torchapi::isTensor(item)) shadow = rec.guards.tensorShadow(item, shadow);
      bool known = (torchapi::isTensor(item) || shadow.isConst()) &&
                   (torchapi::isTensor(total.get()) || sum.isConst());
      if (!known) rec.abort(diag::Code::KTG0103, {"the items of a generator"});
    }
    if (rec.live() && tensors) {
      pyapi::Ref<> added;
      auto made = rec.torch.torchOperation(snap, added, [&] { return PyNumber_Add(total.get(), item); });
      if (!made) return items.raise();
      sum = *made;
      total = std::move(added);
      continue;
    }
    bool constant = sum.isConst() && shadow.isConst() && isPlain(item) && isPlain(total.get());
    if (rec.live() && !constant) rec.abort(diag::Code::KTG0103, {"the items of a generator"});
    total = pyapi::steal(PyNumber_Add(total.get(), item));
    if (!total) return items.raise();
  }
  if (items.failed()) return items.raise();
  result = sum;
  return rec.steps.replaceCall(ctx, std::move(total));
}

}  // namespace kintsugi::capture
