// Models: functools.partial, sorted, map and others that call back.
#include "capture/calls/model.h"

namespace kintsugi::capture {

namespace {

// functools.partial(function, *args, **keywords)
Flow partialModel(CallContext& ctx, Shadow& result) {
  bool nested = ctx.positional == 0 || Py_TYPE(ctx.args[0]) == reinterpret_cast<PyTypeObject*>(ctx.callable);
  if (nested || !PyCallable_Check(ctx.args[0])) return knownModel(ctx, result);  // flattened by C code
  std::vector<pyapi::Ref<>> objects;
  for (size_t i = 0; i < ctx.positional; ++i) objects.push_back(pyapi::newRef(ctx.args[i]));
  std::vector<Shadow> parts(ctx.shadows, ctx.shadows + ctx.positional);
  Flow flow = runVirtual(ctx, VirtualKind::kPartial, result);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  Virtual& v = ctx.rec.virtualOf(result);
  for (size_t i = ctx.positional; i < ctx.total(); ++i) {
    PyObject* name = PyTuple_GET_ITEM(ctx.kwnames, static_cast<Py_ssize_t>(i - ctx.positional));
    ctx.rec.setEntry(v, name, ctx.shadows[i]);
  }
  v.parts = std::move(parts);
  v.partObjects = std::move(objects);
  v.partObjects.push_back(pyapi::steal(PyObject_GetAttrString(ctx.act.peek(1), "keywords")));
  return flow;
}

constexpr ModelRow kRows[] = {
    {"functools.partial", partialModel},
};

}  // namespace

void registerFunctionModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
