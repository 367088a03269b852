#include "capture/calls/open_lists.h"
#include "capture/open_values.h"

#include "pyapi/plain.h"

namespace kintsugi::capture {

using ir::Op;

namespace {

bool isOpen(Recorder& rec, Shadow shadow, PyObject* object) {
  return shadow.isSource() && PyList_CheckExact(object) && hasVaryingLength(rec, object);
}

bool isCalledOnOpen(const CallContext& ctx) {
  return ctx.total() > 0 && isOpen(ctx.rec, ctx.shadows[0], ctx.args[0]);
}

void forgetElements(Recorder& rec, PyObject* list) {
  Overlay& overlay = rec.makeOverlay(list);
  overlay.dirty = true;
  overlay.parts.reset();
  overlay.tail.clear();
}

// Nothing in the list is compared or added by Python code, or by torch: this is asked in each run. False: it
// is not so, or the recording has ended.
bool pinPlainItems(CallContext& ctx) {
  if (!pyapi::holdsPlain(ctx.args[0])) return false;
  ctx.rec.guardType(ctx.shadows[0], ctx.args[0]);
  return ctx.rec.pinAnswerOf(pyapi::holdsPlainFunction(), {ir::Operand::source(ctx.shadows[0].id)}, Py_True);
}

Flow openResult(CallContext& ctx, Shadow& result) {
  Flow flow = knownModel(ctx, result);
  if (flow == Flow::kNext && ctx.rec.live() && result.isSource())
    ctx.rec.known().openSlices_.insert(result.id);
  return flow;
}

}  // namespace

std::optional<Flow> changeOpenList(CallContext& ctx, Shadow& result) {
  Recorder& rec = ctx.rec;
  if (!isCalledOnOpen(ctx) || ctx.kwnames != nullptr) return std::nullopt;
  pyapi::Ref<> list = pyapi::newRef(ctx.args[0]);
  rec.guardType(ctx.shadows[0], list.get());
  for (size_t i = 1; i < ctx.total(); ++i) {
    Shadow given = ctx.shadows[i];
    if (!rec.escape(given, ctx.args[i])) return run(ctx);
  }
  Flow flow = knownModel(ctx, result);
  if (rec.live()) forgetElements(rec, list.get());
  return flow;
}

std::optional<Flow> reduceOpenList(CallContext& ctx, Shadow& result) {
  const bool simple = isCalledOnOpen(ctx) && ctx.kwnames == nullptr &&
                      (ctx.total() == 1 || (ctx.total() == 2 && Recorder::isPlain(ctx.args[1])));
  if (!simple) return std::nullopt;
  if (pinPlainItems(ctx)) return knownModel(ctx, result);
  return ctx.rec.live() ? std::nullopt : std::optional(run(ctx));
}

std::optional<Flow> copyOpenList(CallContext& ctx, Shadow& result) {
  if (!isCalledOnOpen(ctx) || ctx.total() != 1 || ctx.kwnames != nullptr) return std::nullopt;
  ctx.rec.guardType(ctx.shadows[0], ctx.args[0]);
  return openResult(ctx, result);
}

std::optional<Flow> sortOpenList(CallContext& ctx, Shadow& result) {
  if (!isCalledOnOpen(ctx)) return std::nullopt;
  for (size_t i = 1; i < ctx.total(); ++i) {  // reverse=
    if (!ctx.shadows[i].isConst() || !PyBool_Check(ctx.args[i])) return std::nullopt;
  }
  if (pinPlainItems(ctx)) return openResult(ctx, result);
  return ctx.rec.live() ? std::nullopt : std::optional(run(ctx));
}

std::optional<bool> storeInOpenList(Recorder& rec, Shadow list, PyObject* object, Shadow& key,
                                    PyObject* index, Shadow value, PyObject* real) {
  if (!isOpen(rec, list, object)) return std::nullopt;
  if (!PyLong_CheckExact(index) && !PySlice_Check(index)) return std::nullopt;
  if (PySlice_Check(index) && real != nullptr) return std::nullopt;  // list[slice] = iterable
  if (!rec.tryPinDeep(key, index)) return rec.live() ? std::nullopt : std::optional(false);
  rec.guardType(list, object);
  const std::pair<Shadow, PyObject*> at = {Shadow::constant(), index};
  const bool written = real != nullptr ? rec.emitEffect(Op::kSetItem, {{list, object}, at, {value, real}})
                                       : rec.emitEffect(Op::kDelItem, {{list, object}, at});
  if (!written) return false;
  forgetElements(rec, object);
  return rec.live();
}

}  // namespace kintsugi::capture
