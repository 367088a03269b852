// Models: function modes of the program's. Their stack changes for real while a call is recorded, and in each run
// again: by known calls that may wait until a graph has been computed, which no operator sees.
#include "capture/calls/function_modes.h"

#include "capture/calls/model.h"
#include "pyapi/plain.h"
#include "torchapi/function_modes.h"
#include "torchapi/global_state.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

namespace {

// What the mode is given for a call: (function, types, arguments[, keywords]). Null: nobody knows.
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

// The shadow of something that the mode is given: an argument of the call, or a constant.
std::optional<Shadow> shadowOf(const CallContext& ctx, PyObject* object) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (ctx.args.any(i) == object) return ctx.shadows.any(i);
  }
  if (object == Py_None || PyBool_Check(object) || isPlain(object)) return Shadow::constant();
  return std::nullopt;
}

struct Handed {
  pyapi::Ref<> seen;
  pyapi::Ref<> names;  // of the keywords
  Replacement call;

  bool add(const CallContext& ctx, PyObject* object) {
    const auto shadow = shadowOf(ctx, object);
    if (!shadow) return false;
    call.args.push_back(object);
    call.shadows.push_back(*shadow);
    return true;
  }
};

// The arguments of the function that stands for torch's code. False: one of them has come from nowhere.
bool hand(const CallContext& ctx, Handed& handed) {
  PyObject* seen = handed.seen.get();
  PyObject* keywords = PyTuple_GET_SIZE(seen) == 4 ? PyTuple_GET_ITEM(seen, 3) : nullptr;
  for (PyObject* known : {PyTuple_GET_ITEM(seen, 0), PyTuple_GET_ITEM(seen, 1),
                          keywords != nullptr ? Py_True : Py_False}) {
    handed.call.args.push_back(known);
    handed.call.shadows.push_back(Shadow::constant());
  }
  PyObject* args = PyTuple_GET_ITEM(seen, 2);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    if (!handed.add(ctx, PyTuple_GET_ITEM(args, i))) return false;
  }
  handed.call.positional = handed.call.args.size();
  if (keywords == nullptr) return true;
  if (!PyDict_CheckExact(keywords)) return false;
  if (PyDict_GET_SIZE(keywords) == 0) return true;
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(keywords, &at, &name, &value) != 0) {
    if (!handed.add(ctx, value)) return false;
  }
  handed.names = pyapi::steal(PySequence_Tuple(keywords));
  handed.call.names = handed.names.get();
  return handed.call.names != nullptr;
}

// torch._C._pop_torch_function_stack(): what it gives was pushed in this trace, or is a step's result.
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
    {"torch._C._pop_torch_function_stack", popModel, kWritesProcess},
    {"torch._C._push_on_torch_function_stack", pushModel, kWritesProcess},
};

static_assert(statesAreNamed(kRows));

}  // namespace

std::optional<Flow> underFunctionModes(CallContext& ctx, Shadow& result) {
  PyObject* function = polyfill("under_mode");
  if (function == nullptr || ctx.resultDepth != 1 || ctx.popped == 0 || torchapi::hasDispatchModes() ||
      torchapi::transformsActive()) {
    return std::nullopt;
  }
  Handed handed{seenByMode(ctx), {}, {function, {}, {}, 0, nullptr}};
  if (!handed.seen) PyErr_Clear();
  if (!handed.seen || !PyTuple_Check(handed.seen.get()) || !hand(ctx, handed)) return std::nullopt;
  return callReplacement(ctx, handed.call, result);
}

void registerFunctionModeModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
