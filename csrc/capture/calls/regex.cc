// Models: regular expressions. Patterns and matches can't change and follow from pinned strings, so they are
// frozen objects of the recording.
#include <string_view>

#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/known_objects.h"

namespace kintsugi::capture {

using pyapi::Known;

namespace {

bool isTextCallable(PyObject* object) { return PyCallable_Check(object) == 1; }

// A text of a class of its own (`torch.__version__`): its characters can't change, and C code reads nothing
// else.
bool isDerivedText(PyObject* object) { return PyUnicode_Check(object) && !PyUnicode_CheckExact(object); }

// Pins the arguments. False: they can't be pinned, or the recording has ended.
bool pinArguments(CallContext& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow shadow = ctx.shadows.any(i);
    if (shadow.isConst() && ctx.rec.guards.isFrozen(ctx.args.any(i))) continue;
    if (ctx.rec.guards.comesFromStep(shadow)) return false;
    const bool pinned =
        (pyapi::isA(ctx.args.any(i), Known::kPattern) || isDerivedText(ctx.args.any(i))) && shadow.isSource()
            ? ctx.rec.guards.pin(shadow, ctx.args.any(i))
            : !isTextCallable(ctx.args.any(i)) && ctx.rec.guards.tryPinDeep(shadow, ctx.args.any(i));
    if (!pinned) return false;
  }
  return true;
}

Flow textModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (!pinArguments(ctx)) {
    if (!rec.live()) return run(ctx);
    bool calls = false;  // a function is called, as sub() may do
    for (size_t i = 0; i < ctx.total(); ++i) calls = calls || isTextCallable(ctx.args.any(i));
    return calls ? opaqueModel(ctx, result) : knownModel(ctx, result);
  }
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = run(ctx);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  PyObject* made = ctx.act.peek(1);
  result = Shadow::constant();
  if (pyapi::isA(made, Known::kPattern) || pyapi::isA(made, Known::kMatch)) {
    rec.guards.freeze(made);
  } else if (PyList_CheckExact(made)) {
    result = rec.objects.newVirtual(VirtualKind::kList, made);
    rec.objects.virtualOf(result).parts.assign(static_cast<size_t>(PyList_GET_SIZE(made)),
                                               Shadow::constant());
  } else if (PyDict_CheckExact(made)) {
    result = rec.objects.newVirtual(VirtualKind::kDict, made);
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(made, &at, &key, &value))
      rec.objects.setEntry(rec.objects.virtualOf(result), key, Shadow::constant());
  }
  return flow;
}

// `re._compile(pattern, flags)`: it has a cache, of which a program sees nothing.
Flow compileModel(CallContext& ctx, Shadow& result) {
  const bool simple = ctx.total() == 2 && ctx.kwnames == nullptr &&
                      (PyUnicode_CheckExact(ctx.args[0]) || PyBytes_CheckExact(ctx.args[0]) ||
                       pyapi::isA(ctx.args[0], Known::kPattern));
  if (!simple || ctx.rec.guards.comesFromStep(ctx.shadows[0])) return inlineFunction(ctx, result);
  return textModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    {"re._compile", compileModel, gives("re.Pattern").raises("NotImplementedError RuntimeError ValueError")},
    {"re.Pattern.match", textModel, gives("re.Match None")},
    {"re.Pattern.fullmatch", textModel, gives("re.Match None")},
    {"re.Pattern.search", textModel, gives("re.Match None")},
    {"re.Pattern.sub", textModel, gives("str bytes argument")},
    {"re.Pattern.subn", textModel, gives("tuple")},
    {"re.Pattern.findall", textModel, gives("list")},
    {"re.Pattern.split", textModel, gives("list")},
    {"re.Match.group", textModel, gives("str bytes None tuple").raises("IndexError")},
    {"re.Match.groups", textModel, gives("tuple")},
    {"re.Match.start", textModel, gives("int").raises("IndexError")},
    {"re.Match.end", textModel, gives("int").raises("IndexError")},
    {"re.Match.span", textModel, gives("tuple").raises("IndexError")},
    {"re.Match.groupdict", textModel, gives("dict")},
    {"re.Match.expand", textModel, gives("str bytes")},
    {"re.Match.__getitem__", textModel, gives("str bytes None").raises("IndexError")},
};

}  // namespace

void registerRegexModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
