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

// `sum(generator)`: a polyfill adds, between the generator's own operations. Only CPython's sum() adds
// floats.
Flow sumModel(CallContext& ctx, Shadow& result) {
  const bool known =
      ctx.positional > 0 && ctx.total() <= 2 && (ctx.kwnames == nullptr || ctx.keyword("start"));
  if (!known) return opaqueModel(ctx, result);
  if (auto flow = iterateInstead(ctx, "sum_", result)) return *flow;
  if (!ctx.rec.live()) return run(ctx);
  return ArgumentIterator(ctx, 0).runsPythonCode() ? callPolyfill(ctx, "sum_", result)
                                                   : reduceModel(ctx, result, true);
}

}  // namespace kintsugi::capture
