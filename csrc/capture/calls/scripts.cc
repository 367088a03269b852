#include "capture/calls/scripts.h"

#include "capture/callee.h"
#include "capture/calls/model.h"
#include "capture/foreign.h"
#include "capture/tables/pauses.h"
#include "pyapi/imports.h"
#include "pyapi/made_polyfills.h"
#include "torchapi/global_state.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

namespace {

// What does the same as the script with these arguments; null: there is nothing.
pyapi::Ref<> functionFor(CallContext& ctx) {
  const Paused paused(ctx.rec.pauses);
  const pyapi::Ref<> module = pyapi::steal(pyapi::importModule("kintsugi._scripts"));
  const pyapi::Ref<> ask =
      module ? pyapi::steal(PyObject_GetAttrString(module.get(), "function_of")) : pyapi::Ref<>();
  const pyapi::Ref<> given = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(ctx.total() - 1)));
  for (size_t i = 1; given && i < ctx.total(); ++i)
    PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(i - 1), Py_NewRef(ctx.args.any(i)));
  pyapi::Ref<> made;
  if (ask && given)
    made = pyapi::steal(PyObject_CallFunctionObjArgs(
        ask.get(), ctx.args[0], given.get(), ctx.kwnames != nullptr ? ctx.kwnames : Py_None, nullptr));
  PyErr_Clear();
  return made && PyFunction_Check(made.get()) ? std::move(made) : pyapi::Ref<>();
}

bool takesForeign(const CallContext& ctx) {
  for (size_t i = 1; i < ctx.total(); ++i) {
    if (isForeign(ctx.shadows.any(i), ctx.args.any(i))) return true;
  }
  return false;
}

}  // namespace

Flow scriptModel(CallContext& ctx, Shadow& result) {
  PyObject* script = ctx.args[0];
  const bool direct =
      ctx.popped >= 2 && ctx.act.peek(calleeDepth(ctx.act, static_cast<int>(ctx.popped))) == script;
  if (!direct || torchapi::hasModes() || torchapi::transformsActive() || takesForeign(ctx))
    return opaqueModel(ctx, result);
  const pyapi::Ref<> function = functionFor(ctx);
  // It calls the script itself where that raises.
  if (!function || PyFunction_GET_CODE(function.get()) == reinterpret_cast<const PyObject*>(ctx.frame.code))
    return opaqueModel(ctx, result);
  Shadow shadow = ctx.shadows[0];
  if (!ctx.rec.guards.pin(shadow, script)) return run(ctx);
  pyapi::addPolyfill(PyFunction_GET_CODE(function.get()));
  CallContext inner = ctx;
  inner.of(script, shadow, ctx.args.begin() + 1, ctx.shadows.begin() + 1, ctx.positional - 1, ctx.kwnames);
  return callInstead(inner, function.get(), result);
}

}  // namespace kintsugi::capture
