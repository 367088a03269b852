// Models: the methods of list.
#include <algorithm>

#include "capture/calls/argument_iterator.h"
#include "capture/calls/model.h"
#include "capture/calls/open_lists.h"
#include "capture/calls/table.h"
#include "capture/lists.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// For a method that changes the list by its arguments: the shadows of the elements, to be changed likewise.
// For a shared list the call is also emitted as an effect. Null: not known.
Shadows* elementsToChange(CallContext& ctx, const char* method) {
  RecordContext& rec = ctx.rec;
  Shadows* parts = listParts(rec, ctx.shadows[0], ctx.args[0]);
  if (parts == nullptr || ctx.kwnames != nullptr) return nullptr;
  if (!isSharedList(rec, ctx.shadows[0])) return parts;
  std::vector<std::pair<Shadow, PyObject*>> args;
  for (size_t i = 1; i < ctx.total(); ++i) args.emplace_back(ctx.shadows.any(i), ctx.args.any(i));
  return rec.heap.emitMethod(method, ctx.shadows[0], ctx.args[0], args) ? parts : nullptr;
}

Flow unknown(CallContext& ctx, Shadow& result) {
  return ctx.rec.live() ? opaqueModel(ctx, result) : run(ctx);
}

Flow nothing(CallContext& ctx, Shadow& result) {
  ctx.rec.objects.noteChange(ctx.shadows[0]);
  result = Shadow::constant();
  return run(ctx);
}

Flow appendModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() != 2 || !appendElement(ctx.rec, ctx.shadows[0], ctx.args[0], ctx.shadows[1], ctx.args[1])) {
    return unknown(ctx, result);
  }
  return nothing(ctx, result);
}

Flow extendModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (ctx.total() != 2) return unknown(ctx, result);
  if (auto flow = iterateInstead(ctx, "extend", result)) return *flow;
  bool generator =
      ctx.shadows[1].isVirtual() && rec.objects.virtualOf(ctx.shadows[1]).kind == VirtualKind::kGenerator;
  Shadow list = ctx.shadows[0];
  if (!generator) {
    Shadow more = ctx.shadows[1];
    pyapi::Ref<> kept = pyapi::newRef(ctx.args[0]);
    Py_ssize_t start = PyList_Check(kept.get()) ? PyList_GET_SIZE(kept.get()) : 0;
    extendList(rec, list, kept.get(), more, ctx.args[1]);
    Flow flow = nothing(ctx, result);
    if (flow == Flow::kNext) pairElements(rec, list, kept.get(), more, start);
    return flow;
  }
  if (!list.isVirtual() || rec.objects.virtualOf(list).kind != VirtualKind::kList ||
      isSharedList(rec, list)) {
    return unknown(ctx, result);
  }
  rec.callees.expectItems(ctx.shadows[1]);
  result = Shadow::constant();
  Flow flow = run(ctx);
  for (Shadow item : rec.callees.takeItems()) rec.objects.virtualOf(list).parts.push_back(item);
  rec.objects.noteChange(list);
  return flow;
}

// An integer argument, which is pinned.
bool indexOf(CallContext& ctx, size_t argument, Py_ssize_t& index) {
  Shadow shadow = ctx.shadows[argument];
  if (!PyLong_CheckExact(ctx.args[argument]) || !ctx.rec.guards.pin(shadow, ctx.args[argument])) return false;
  index = PyLong_AsSsize_t(ctx.args[argument]);
  bool ok = index != -1 || PyErr_Occurred() == nullptr;
  PyErr_Clear();
  return ok;
}

// `list.pop()` of a list that others may see is an effect. It returns what is there when it is called.
bool takesElement(CallContext& ctx, Shadow item, Py_ssize_t at) {
  RecordContext& rec = ctx.rec;
  if (ctx.kwnames != nullptr) return false;
  if (!isSharedList(rec, ctx.shadows[0])) return true;
  PyObject* found = PyList_GET_ITEM(ctx.args[0], at);
  if (!rec.objects.fitsElement(item, ctx.args[0], found)) return false;
  if (!rec.heap.canLeave()) return elementsToChange(ctx, "pop") != nullptr;
  const pyapi::Ref<> last = pyapi::steal(PyLong_FromLong(-1));
  PyObject* index = ctx.total() == 2 ? ctx.args[1] : last.get();
  return rec.heap.takeElement(ctx.shadows[0], ctx.args[0], index, item, found);
}

Flow popModel(CallContext& ctx, Shadow& result) {
  Py_ssize_t at = -1;
  if (auto flow = changeOpenList(ctx, result)) return *flow;
  Shadows* parts = listParts(ctx.rec, ctx.shadows[0], ctx.args[0]);
  if (parts == nullptr || ctx.total() > 2 || (ctx.total() == 2 && !indexOf(ctx, 1, at))) {
    return unknown(ctx, result);
  }
  auto n = static_cast<Py_ssize_t>(parts->size());
  if (at < 0) at += n;
  if (at < 0 || at >= n) return nothing(ctx, result);  // the run raises IndexError
  result = (*parts)[at];
  if (!takesElement(ctx, result, at)) return unknown(ctx, result);
  parts->erase(parts->begin() + at);
  ctx.rec.objects.noteChange(ctx.shadows[0]);
  return run(ctx);
}

Flow insertModel(CallContext& ctx, Shadow& result) {
  Py_ssize_t at = 0;
  if (auto flow = changeOpenList(ctx, result)) return *flow;
  Shadows* parts = ctx.total() == 3 && indexOf(ctx, 1, at) ? elementsToChange(ctx, "insert") : nullptr;
  if (parts == nullptr) return unknown(ctx, result);
  auto n = static_cast<Py_ssize_t>(parts->size());
  at = std::clamp<Py_ssize_t>(at < 0 ? at + n : at, 0, n);
  parts->insert(parts->begin() + at, ctx.shadows[2]);
  return nothing(ctx, result);
}

Flow reverseModel(CallContext& ctx, Shadow& result) {
  if (auto flow = changeOpenList(ctx, result)) return *flow;
  Shadows* parts = elementsToChange(ctx, "reverse");
  if (parts == nullptr) return unknown(ctx, result);
  std::reverse(parts->begin(), parts->end());
  return nothing(ctx, result);
}

Flow clearModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() != 1 || !clearElements(ctx.rec, ctx.shadows[0], ctx.args[0])) return unknown(ctx, result);
  return nothing(ctx, result);
}

// Pins all elements. False: some could compare differently in another run.
bool pinElements(CallContext& ctx, Shadows& parts) {
  PyObject* list = ctx.args[0];
  for (size_t i = 0; i < parts.size(); ++i) {
    PyObject* item = PyList_GET_ITEM(list, static_cast<Py_ssize_t>(i));
    Shadow shadow = parts[i];
    bool plain = isPlainDeep(item) || isIdentityValue(item);
    if (!plain || !ctx.rec.guards.tryPinDeep(shadow, item)) return false;
  }
  return true;
}

Flow removeModel(CallContext& ctx, Shadow& result) {
  Shadows* parts = listParts(ctx.rec, ctx.shadows[0], ctx.args[0]);
  Shadow value = ctx.total() == 2 ? ctx.shadows[1] : Shadow::null();
  bool known = parts != nullptr && ctx.total() == 2 &&
               (isPlainDeep(ctx.args[1]) || isIdentityValue(ctx.args[1])) && pinElements(ctx, *parts) &&
               ctx.rec.guards.tryPinDeep(value, ctx.args[1]);
  if (!known) return unknown(ctx, result);
  for (size_t i = 0; i < parts->size(); ++i) {
    PyObject* item = PyList_GET_ITEM(ctx.args[0], static_cast<Py_ssize_t>(i));
    if (PyObject_RichCompareBool(item, ctx.args[1], Py_EQ) != 1) continue;
    if (elementsToChange(ctx, "remove") == nullptr) return unknown(ctx, result);
    parts->erase(parts->begin() + static_cast<ptrdiff_t>(i));
    return nothing(ctx, result);
  }
  PyErr_Clear();
  return nothing(ctx, result);  // the run raises ValueError
}

Flow sortModel(CallContext& ctx, Shadow& result) {
  Shadows* parts = listParts(ctx.rec, ctx.shadows[0], ctx.args[0]);
  if (parts == nullptr || ctx.total() != 1 || !pinElements(ctx, *parts) ||
      elementsToChange(ctx, "sort") == nullptr) {
    return unknown(ctx, result);
  }
  Shadows before = *parts;
  pyapi::Ref<> list = pyapi::newRef(ctx.args[0]);
  pyapi::Ref<> copy = pyapi::steal(PySequence_Tuple(list.get()));
  Flow flow = nothing(ctx, result);
  if (flow != Flow::kNext) {  // elements that can't be compared: the list may be half sorted
    ctx.rec.abort(diag::Code::KTG0303, {"list.sort", "it raised"});
    return flow;
  }
  for (size_t i = 0; i < parts->size(); ++i) {
    PyObject* item = PyList_GET_ITEM(list.get(), static_cast<Py_ssize_t>(i));
    for (size_t k = 0; k < before.size(); ++k) {
      if (PyTuple_GET_ITEM(copy.get(), static_cast<Py_ssize_t>(k)) == item) (*parts)[i] = before[k];
    }
  }
  return flow;
}

constexpr ModelRow kRows[] = {
    {"builtins.list.append", appendModel, gives("None").runsNoPython()},
    {"builtins.list.extend", extendModel, gives("None")},
    {"builtins.list.pop", popModel, gives(kAnItem).raises("IndexError")},
    {"builtins.list.insert", insertModel, gives("None")},
    {"builtins.list.reverse", reverseModel, gives("None").runsNoPython()},
    {"builtins.list.clear", clearModel, gives("None").runsNoPython()},
    {"builtins.list.remove", removeModel, gives("None").raises("ValueError")},
    {"builtins.list.sort", sortModel, gives("None")},
    {"builtins.list.index", identityModel, gives("int").raises("ValueError")},
    {"builtins.list.count", identityModel, gives("int").raises("ValueError")},
};

}  // namespace

std::optional<Flow> listCall(CallContext& ctx, const PooledVector<PyObject*>& args, const Shadows& shadows,
                             PyTypeObject* type, Shadow& result) {
  bool own = pyapi::makesLike(type, &PyList_Type) && args.size() <= 1;
  for (const char* name : {"__init__", "__new__"}) {
    own = own && specialMethod(type, name) == specialMethod(&PyList_Type, name);
  }
  if (!own) return std::nullopt;
  std::optional<Shadows> parts = Shadows{};
  if (!args.empty()) {
    const bool plain = (PyList_Check(args[0]) || PyTuple_CheckExact(args[0])) &&
                       pythonMethod(args[0], "__iter__") == nullptr &&
                       pythonMethod(args[0], "__len__") == nullptr;
    parts = plain && !shadows[0].isValue() ? ctx.rec.objects.iterated(shadows[0], args[0]) : std::nullopt;
  }
  if (!parts) return ctx.rec.live() ? std::nullopt : std::optional(run(ctx));
  Flow flow = runVirtual(ctx, VirtualKind::kList, result);
  if (flow == Flow::kNext && ctx.rec.live()) ctx.rec.objects.virtualOf(result).parts = std::move(*parts);
  return flow;
}

void registerListModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
