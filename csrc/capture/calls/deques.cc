// Models: collections.deque. If the trace has made the deque and nobody else holds it, it is followed like a
// list. Guards read nothing of other deques, so what changes those leaves the trace's knowledge valid.
#include <algorithm>

#include "capture/calls/argument_iterator.h"
#include "capture/calls/model.h"
#include "capture/calls/table.h"

namespace kintsugi::capture {

namespace {

// For a call that keeps the items of an iterable. From a list or tuple C code takes them itself. For other
// iterables, Python code may be called, so the call is opaque.
Flow keepItems(CallContext& ctx, size_t first, Shadow& result) {
  const bool plain = ctx.total() <= first || PyList_CheckExact(ctx.args.any(first)) ||
                     PyTuple_CheckExact(ctx.args.any(first));
  return plain ? keepModel(ctx, result) : opaqueModel(ctx, result);
}

Virtual* followed(CallContext& ctx) {
  if (ctx.total() == 0 || !ctx.shadows[0].isVirtual()) return nullptr;
  Virtual& v = ctx.rec.objects.virtualOf(ctx.shadows[0]);
  return v.kind == VirtualKind::kDeque && ctx.kwnames == nullptr ? &v : nullptr;
}

// If there are more items than fit, the other end loses as many.
void trim(Virtual& v, bool left) {
  const size_t longest = v.index == 0 ? v.parts.size() : static_cast<size_t>(v.index - 1);
  if (v.parts.size() <= longest) return;
  const auto over = static_cast<ptrdiff_t>(v.parts.size() - longest);
  left ? (void)v.parts.erase(v.parts.begin(), v.parts.begin() + over) : v.parts.resize(longest);
}

Flow changed(CallContext& ctx, Shadow& result) {
  ctx.rec.objects.noteChange(ctx.shadows[0]);
  result = Shadow::constant();
  return run(ctx);
}

Flow appendTo(CallContext& ctx, bool left, Shadow& result) {
  Virtual* v = followed(ctx);
  if (v == nullptr || ctx.total() != 2) return keepModel(ctx, result);
  v->parts.insert(left ? v->parts.begin() : v->parts.end(), ctx.shadows[1]);
  trim(*v, !left);
  return changed(ctx, result);
}
Flow appendModel(CallContext& ctx, Shadow& result) { return appendTo(ctx, false, result); }
Flow appendleftModel(CallContext& ctx, Shadow& result) { return appendTo(ctx, true, result); }

Flow extendBy(CallContext& ctx, bool left, Shadow& result) {
  Virtual* v = followed(ctx);
  const bool own = v != nullptr && ctx.total() == 2 && ctx.args[0] != ctx.args[1] &&
                   (PyList_CheckExact(ctx.args[1]) || PyTuple_CheckExact(ctx.args[1])) &&
                   !ctx.shadows[1].isValue();
  auto items = own ? ctx.rec.objects.iterated(ctx.shadows[1], ctx.args[1]) : std::nullopt;
  if (!items) return ctx.rec.live() ? keepItems(ctx, 1, result) : run(ctx);
  if (left) std::reverse(items->begin(), items->end());
  v->parts.insert(left ? v->parts.begin() : v->parts.end(), items->begin(), items->end());
  trim(*v, !left);
  return changed(ctx, result);
}
Flow extendModel(CallContext& ctx, Shadow& result) { return extendBy(ctx, false, result); }
Flow extendleftModel(CallContext& ctx, Shadow& result) { return extendBy(ctx, true, result); }

Flow popFrom(CallContext& ctx, bool left, Shadow& result) {
  Virtual* v = followed(ctx);
  if (v == nullptr || ctx.total() != 1) return keepModel(ctx, result);
  if (v->parts.empty()) return changed(ctx, result);  // the run raises IndexError
  result = left ? v->parts.front() : v->parts.back();
  left ? (void)v->parts.erase(v->parts.begin()) : v->parts.pop_back();
  ctx.rec.objects.noteChange(ctx.shadows[0]);
  return run(ctx);
}
Flow popModel(CallContext& ctx, Shadow& result) { return popFrom(ctx, false, result); }
Flow popleftModel(CallContext& ctx, Shadow& result) { return popFrom(ctx, true, result); }

Flow rotateModel(CallContext& ctx, Shadow& result) {
  Virtual* v = followed(ctx);
  Shadow by = v != nullptr && ctx.total() == 2 ? ctx.shadows[1] : Shadow::constant();
  const bool known = v != nullptr && ctx.total() <= 2 && (ctx.total() < 2 || PyLong_CheckExact(ctx.args[1]));
  if (!known) return keepModel(ctx, result);
  if (ctx.total() == 2 && !ctx.rec.guards.pin(by, ctx.args[1])) return run(ctx);
  const auto n = static_cast<long long>(v->parts.size());
  const long long steps = ctx.total() == 2 ? PyLong_AsLongLong(ctx.args[1]) : 1;
  if (steps == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return keepModel(ctx, result);
  }
  const long long right = n == 0 ? 0 : ((steps % n) + n) % n;
  std::rotate(v->parts.begin(), v->parts.end() - right, v->parts.end());
  return changed(ctx, result);
}

Flow reverseModel(CallContext& ctx, Shadow& result) {
  Virtual* v = followed(ctx);
  if (v == nullptr || ctx.total() != 1) return keepModel(ctx, result);
  std::reverse(v->parts.begin(), v->parts.end());
  return changed(ctx, result);
}

Flow clearModel(CallContext& ctx, Shadow& result) {
  Virtual* v = followed(ctx);
  if (v == nullptr || ctx.total() != 1) return keepModel(ctx, result);
  v->parts.clear();
  return changed(ctx, result);
}

Flow copyModel(CallContext& ctx, Shadow& result) {
  Virtual* v = followed(ctx);
  if (v == nullptr || ctx.total() != 1) return keepModel(ctx, result);
  Shadows parts = v->parts;
  const int64_t index = v->index;
  Flow flow = runVirtual(ctx, VirtualKind::kDeque, result);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  ctx.rec.objects.virtualOf(result).parts = std::move(parts);
  ctx.rec.objects.virtualOf(result).index = index;
  return flow;
}

// Finds `iterable` and `maxlen` among the arguments of deque(). False: it is called in another way.
bool splitArguments(CallContext& ctx, size_t& iterable, size_t& length) {
  iterable = ctx.positional > 0 ? 0 : ctx.total();
  length = ctx.positional > 1 ? 1 : ctx.total();
  for (size_t i = ctx.positional; i < ctx.total(); ++i) {
    PyObject* name = ctx.nameOf(i);
    if (PyUnicode_CompareWithASCIIString(name, "maxlen") == 0 && length == ctx.total()) {
      length = i;
    } else if (PyUnicode_CompareWithASCIIString(name, "iterable") == 0 && iterable == ctx.total()) {
      iterable = i;
    } else {
      return false;
    }
  }
  return ctx.positional <= 2;
}

// `deque(x, maxlen=0)`, which only consumes an iterator.
std::optional<Flow> dropItems(CallContext& ctx, Shadow& result) {
  ArgumentIterator items(ctx, 0);
  if (!items.runsPythonCode()) return std::nullopt;
  while (items.next()) {
  }
  if (items.failed()) return items.raise();
  pyapi::Ref<> made = pyapi::steal(PyObject_CallFunction(ctx.callable, "()i", 0));
  if (!made) return items.raise();
  result = ctx.rec.objects.newVirtual(VirtualKind::kDeque, made.get());
  ctx.rec.objects.virtualOf(result).index = 1;
  return ctx.rec.steps.replaceCall(ctx, std::move(made));
}

Flow dequeModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  size_t iterable = 0, length = 0;
  if (!splitArguments(ctx, iterable, length)) return keepItems(ctx, 0, result);
  int64_t longest = 0;
  if (length < ctx.total())
    rec.guards.guardType(ctx.shadows.any(length), ctx.args.any(length));  // None or a number
  if (length < ctx.total() && ctx.args.any(length) != Py_None) {
    Shadow s = ctx.shadows.any(length);
    if (!PyLong_CheckExact(ctx.args.any(length))) return keepItems(ctx, 0, result);
    if (!rec.guards.pin(s, ctx.args.any(length))) return run(ctx);
    longest = PyLong_AsSsize_t(ctx.args.any(length));
    PyErr_Clear();
    if (longest < 0) return keepItems(ctx, 0, result);  // the run raises ValueError
    ++longest;
    if (longest == 1 && ctx.positional > 0) {
      if (auto flow = dropItems(ctx, result)) return *flow;
    }
  }
  const bool some = iterable < ctx.total();
  if (ctx.positional > 0 && makesFrames(ctx, 0)) {
    if (auto flow = iterateInstead(ctx, "deque_", result)) return *flow;
  }
  std::optional<Shadows> parts = Shadows{};
  Shadow from = some ? ctx.shadows.any(iterable) : Shadow::constant();
  if (some) parts = from.isValue() ? std::nullopt : rec.objects.iterated(from, ctx.args.any(iterable));
  if (!parts) return rec.live() ? keepItems(ctx, iterable, result) : run(ctx);
  Flow flow = runVirtual(ctx, VirtualKind::kDeque, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  rec.objects.virtualOf(result).index = longest;
  rec.objects.virtualOf(result).parts = std::move(*parts);
  trim(rec.objects.virtualOf(result), true);
  PyObject* made = ctx.act.peek(1);
  for (size_t i = 0; i < rec.objects.virtualOf(result).parts.size(); ++i) {  // the items of a dict are pairs
    pyapi::Ref<> item = pyapi::steal(PySequence_GetItem(made, static_cast<Py_ssize_t>(i)));
    Shadow part = rec.objects.itemOf(from, rec.objects.virtualOf(result).parts[i], item.get());
    rec.objects.virtualOf(result).parts[i] = part;
  }
  if (from.isVirtual() && rec.objects.virtualOf(from).kind == VirtualKind::kIterator) {
    rec.objects.virtualOf(from).index += static_cast<int64_t>(rec.objects.virtualOf(result).parts.size());
    rec.objects.noteChange();
  }
  return flow;
}

constexpr ModelRow kRows[] = {
    {"collections.deque", dequeModel, gives("collections.deque").raises("ValueError")},
    {"collections.deque.append", appendModel, gives("None").runsNoPython()},
    {"collections.deque.appendleft", appendleftModel, gives("None").runsNoPython()},
    {"collections.deque.extend", extendModel, gives("None")},
    {"collections.deque.extendleft", extendleftModel, gives("None")},
    {"collections.deque.insert", keepModel, gives("None")},
    {"collections.deque.pop", popModel, gives(kAnItem).runsNoPython()},
    {"collections.deque.popleft", popleftModel, gives(kAnItem).runsNoPython()},
    {"collections.deque.rotate", rotateModel, gives("None")},
    {"collections.deque.reverse", reverseModel, gives("None").runsNoPython()},
    {"collections.deque.clear", clearModel, gives("None").runsNoPython()},
    {"collections.deque.copy", copyModel, gives("collections.deque")},
};

}  // namespace

void registerDequeModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
