// Models: function modes of the program's. Their stack changes for real while a call is recorded, and in each
// run again: by known calls that may wait until a graph has been computed, which no operator sees.
#include "capture/calls/function_modes.h"

#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "pyapi/plain.h"
#include "pyapi/text.h"
#include "torchapi/function_modes.h"
#include "torchapi/global_state.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

namespace {

// What the mode is given for a call: (function, types, arguments[, keywords]). Null: the call is not
// modelled.
pyapi::Ref<> seenByMode(CallContext& ctx) {
  PyObject* ask = polyfill("seen_by_mode");
  pyapi::Ref<> args = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(ctx.positional)));
  pyapi::Ref<> named = pyapi::steal(PyDict_New());
  if (ask == nullptr || !args || !named) return {};
  for (size_t i = 0; i < ctx.total(); ++i) {
    PyObject* arg = ctx.args.any(i);
    if (i < ctx.positional) {
      PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arg));
    } else if (PyDict_SetItem(named.get(),
                              PyTuple_GET_ITEM(ctx.kwnames, static_cast<Py_ssize_t>(i - ctx.positional)),
                              arg) < 0) {
      return {};
    }
  }
  const Paused paused(ctx.rec.pauses);
  return pyapi::steal(PyObject_CallFunctionObjArgs(ask, ctx.callable, args.get(), named.get(), nullptr));
}

bool isRunTimeNumber(const CallContext& ctx, size_t at) {
  return ctx.shadows.any(at).isValue() && !torchapi::isTensor(ctx.args.any(at));
}

// The shadow of something that the mode is given in the place of argument `at` of the call, if there is one:
// that argument, another one, or a constant. Small numbers are one object wherever they come from, so where
// one is known only at run time its place has to say which it is.
std::optional<Shadow> shadowOf(const CallContext& ctx, PyObject* object, size_t at) {
  if (at < ctx.total() && ctx.args.any(at) == object) return ctx.shadows.any(at);
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (ctx.args.any(i) != object) continue;
    return isRunTimeNumber(ctx, i) ? std::nullopt : std::optional(ctx.shadows.any(i));
  }
  const bool plain = object == Py_None || PyBool_Check(object) || isPlain(object);
  return plain ? std::optional(Shadow::constant()) : std::nullopt;
}

struct ModeCall {
  pyapi::Ref<> seen;
  pyapi::Ref<> names;  // of the keywords
  Replacement call;

  bool add(const CallContext& ctx, PyObject* object, size_t at) {
    const auto shadow = shadowOf(ctx, object, at);
    if (!shadow) return false;
    call.args.push_back(object);
    call.shadows.push_back(*shadow);
    return true;
  }
};

// The arguments of the function that stands for torch's code. False: one of them is neither an argument of
// the call nor a constant.
bool bindArguments(const CallContext& ctx, ModeCall& made) {
  PyObject* seen = made.seen.get();
  PyObject* keywords = PyTuple_GET_SIZE(seen) == 4 ? PyTuple_GET_ITEM(seen, 3) : nullptr;
  for (PyObject* known :
       {PyTuple_GET_ITEM(seen, 0), PyTuple_GET_ITEM(seen, 1), keywords != nullptr ? Py_True : Py_False}) {
    made.call.args.push_back(known);
    made.call.shadows.push_back(Shadow::constant());
  }
  PyObject* args = PyTuple_GET_ITEM(seen, 2);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    if (!made.add(ctx, PyTuple_GET_ITEM(args, i), static_cast<size_t>(i))) return false;
  }
  made.call.positional = made.call.args.size();
  if (keywords == nullptr) return true;
  if (!PyDict_CheckExact(keywords)) return false;
  if (PyDict_GET_SIZE(keywords) == 0) return true;
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(keywords, &at, &name, &value) != 0) {
    const auto given = ctx.keyword(name);
    if (!made.add(ctx, value, given.value_or(ctx.total()))) return false;
  }
  made.names = pyapi::steal(PySequence_Tuple(keywords));
  made.call.names = made.names.get();
  return made.call.names != nullptr;
}

// torch._C._pop_torch_function_stack(): the mode that it gives is an object of the trace if the trace pushed
// it, else the result of a step.
Flow popModel(CallContext& ctx, Shadow& result) {
  PyObject* top = torchapi::innermostFunctionMode();
  const auto known = top != nullptr ? ctx.rec.objects.knownObject(top) : std::nullopt;
  if (ctx.total() != 0) return opaqueModel(ctx, result);
  if (!known) return knownModel(ctx, result);
  result = *known;
  return ctx.rec.steps.quietCall(ctx);
}

Flow pushModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() != 1 || ctx.kwnames != nullptr) return opaqueModel(ctx, result);
  result = Shadow::constant();
  return ctx.rec.steps.quietCall(ctx);
}

constexpr ModelRow kRows[] = {
    {"torch._C._pop_torch_function_stack", popModel,
     kWritesProcess.gives("any: a mode of the program's").raises("RuntimeError")},
    {"torch._C._push_on_torch_function_stack", pushModel, kWritesProcess.gives("None")},
};

}  // namespace

std::optional<Flow> underFunctionModes(CallContext& ctx, Shadow& result) {
  PyObject* function = polyfill("under_mode");
  if (function == nullptr || ctx.resultDepth != 1 || ctx.popped == 0 || torchapi::hasDispatchModes() ||
      torchapi::transformsActive()) {
    return std::nullopt;
  }
  ModeCall made{seenByMode(ctx), {}, {function, {}, {}, 0, nullptr}};
  if (!made.seen) PyErr_Clear();
  if (!made.seen || !PyTuple_Check(made.seen.get()) || !bindArguments(ctx, made)) return std::nullopt;
  return callReplacement(ctx, made.call, result);
}

std::optional<Flow> attributeGetter(CallContext& ctx, Shadow& result) {
  if (ctx.total() != 1 || ctx.kwnames != nullptr || !ctx.callableShadow.isConst() ||
      !torchapi::isTensor(ctx.args[0]))
    return std::nullopt;
  PyObject *function = polyfill("read_attribute"), *find = polyfill("attribute_of");
  if (function == nullptr || find == nullptr) return std::nullopt;
  pyapi::Ref<> name;
  {
    const Paused paused(ctx.rec.pauses);
    name = pyapi::steal(PyObject_CallOneArg(find, ctx.callable));
  }
  if (!name) PyErr_Clear();
  if (!name || name.get() == Py_None) return std::nullopt;
  return callReplacement(
      ctx, {function, {ctx.args[0], name.get()}, {ctx.shadows[0], Shadow::constant()}, 2, nullptr}, result);
}

void registerFunctionModeModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
