// Models: functools.partial, functools.singledispatch and copies of code objects.
#include "capture/calls/inner_code.h"
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/lazy.h"

namespace kintsugi::capture {

namespace {

// `functools.partial(function, *args, **keywords)`.
Flow partialModel(CallContext& ctx, Shadow& result) {
  bool nested = ctx.positional == 0 || Py_TYPE(ctx.args[0]) == reinterpret_cast<PyTypeObject*>(ctx.callable);
  // CPython makes one object of partial(partial(f)): this is not modelled.
  if (nested || !PyCallable_Check(ctx.args[0])) return knownModel(ctx, result);
  ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);  // whether it can be called depends on that alone
  Refs objects;
  for (size_t i = 0; i < ctx.positional; ++i) objects.push_back(pyapi::newRef(ctx.args.any(i)));
  const auto positional = ctx.shadows.slice(0, ctx.positional);
  Shadows parts(positional.begin(), positional.end());
  Flow flow = runVirtual(ctx, VirtualKind::kPartial, result);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  Virtual& v = ctx.rec.objects.virtualOf(result);
  for (size_t i = ctx.positional; i < ctx.total(); ++i) {
    ctx.rec.objects.setEntry(v, ctx.nameOf(i), ctx.shadows.any(i));
  }
  v.parts = std::move(parts);
  v.partObjects = std::move(objects);
  v.partObjects.push_back(pyapi::steal(PyObject_GetAttrString(ctx.act.peek(1), "keywords")));
  return flow;
}

bool isDispatch(PyObject* function) {
  static constinit pyapi::Lazy<PyCodeObject*> codeSlot;
  PyCodeObject* code = codeSlot.get([] { return innerCode("functools", "singledispatch", "dispatch"); });
  return code != nullptr && PyFunction_GET_CODE(function) == reinterpret_cast<PyObject*>(code);
}

// The content of a function's free variable.
std::optional<Shadow> freeVariable(RecordContext& rec, ir::SourceId function, PyObject* object,
                                   const char* name, pyapi::Ref<>& content) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(object));
  PyObject* closure = PyFunction_GET_CLOSURE(object);
  const int first = pyapi::firstFreeVariable(code);
  for (int i = 0; closure != nullptr && i < pyapi::freeVariableCount(code); ++i) {
    PyObject* variable = pyapi::variableName(code, first + i);
    if (PyUnicode_CompareWithASCIIString(variable, name) != 0) continue;
    PyObject* cell = PyTuple_GET_ITEM(closure, i);
    content = pyapi::newRef(PyCell_GET(cell));
    if (!content || rec.objects.overlayOf(cell) != nullptr) return std::nullopt;
    Shadow read = rec.guards.readSource(guard::SourceKind::kClosure, function, nullptr, i, cell);
    if (!read.isSource()) return std::nullopt;
    return rec.guards.readSource(guard::SourceKind::kCell, read.sourceId(), nullptr, 0, content.get());
  }
  return std::nullopt;
}

// `code.replace(...)`. Code never changes, and what is made of constants is the same in all runs: it is one
// object for all of them.
Flow replaceCodeModel(CallContext& ctx, Shadow& result) {
  ctx.rec.facts.bound = "it makes a code object";
  return constantModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    {"functools.partial", partialModel, gives("functools.partial")},
    {"types.CodeType.replace", replaceCodeModel, gives(kOfItsKind)},
};

}  // namespace

// The implementation that functools.singledispatch has for a class. It is read from the registry, which must
// have no abstract classes. The dispatcher's cache is not recorded, since a program sees nothing of it.
std::optional<Flow> dispatchModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  PyObject* function = ctx.callable;
  Shadow callable = ctx.callableShadow, cls = ctx.positional == 1 ? ctx.shadows[0] : Shadow::null();
  const bool simple = isDispatch(function) && ctx.total() == 1 && ctx.kwnames == nullptr &&
                      PyType_Check(ctx.args[0]) && (callable.isSource() || callable.isConst()) &&
                      !cls.isValue() && !cls.isVirtual();
  if (!simple) return std::nullopt;
  if (!rec.guards.pin(cls, ctx.args[0]) || !rec.guards.pin(callable, function)) return run(ctx);
  rec.guards.guardTypeVersion(reinterpret_cast<PyTypeObject*>(ctx.args[0]));
  rec.guards.pinFunction(function);
  const ir::SourceId source = rec.guards.sourceOf(callable, function);
  pyapi::Ref<> token, registry;
  auto tokenShadow = freeVariable(rec, source, function, "cache_token", token);
  if (!tokenShadow || token.get() != Py_None || !rec.guards.pinIsNone(*tokenShadow, token.get()))
    return rec.live() ? std::nullopt : std::optional(run(ctx));
  auto registryShadow = freeVariable(rec, source, function, "registry", registry);
  if (!registryShadow || !PyDict_CheckExact(registry.get())) return std::nullopt;
  auto entries = rec.objects.dictParts(*registryShadow, registry.get(), 1);
  if (!entries) return run(ctx);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = run(ctx);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  pyapi::Ref<> values = pyapi::steal(PyDict_Values(registry.get()));
  for (size_t i = 0; i < entries->size(); ++i) {
    if (PyList_GET_ITEM(values.get(), static_cast<Py_ssize_t>(i)) != ctx.act.peek(1)) continue;
    result = (*entries)[i];
    return flow;
  }
  rec.abort(diag::Code::KTG0101, {"singledispatch"});
  return flow;
}

void registerFunctionModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
