// Models: send(), throw() and close() of generators that were made in the trace, whose frames are recorded.
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/exceptions.h"
#include "pyapi/exception_state.h"

namespace kintsugi::capture {

namespace {

// The suspended generator of this trace that the call is on, or null. If it delegates (`yield from`), C code
// throws into the innermost generator.
Virtual* waiting(CallContext& ctx) {
  if (!ctx.shadows[0].isVirtual()) return nullptr;
  Virtual& v = ctx.rec.objects.virtualOf(ctx.shadows[0]);
  return v.kind == VirtualKind::kGenerator && v.frame ? &v : nullptr;
}

bool delegates(PyObject* generator) {
  pyapi::Ref<> inner = pyapi::steal(PyObject_GetAttrString(generator, "gi_yieldfrom"));
  PyErr_Clear();
  return inner && inner.get() != Py_None;
}

void announce(CallContext& ctx, Virtual& generator, ir::ReturnAction action) {
  PendingFrame pending;
  pending.generator = &generator;
  pending.site = ctx.rec.snapshots.callSite(ctx.instr, ctx.popped, {}, action);
  ctx.rec.callees.expectFrame(std::move(pending));
}

Flow sendModel(CallContext& ctx, Shadow& result) {
  Virtual* generator = waiting(ctx);
  if (generator == nullptr || ctx.total() != 2) return opaqueModel(ctx, result);
  announce(ctx, *generator, ir::ReturnAction::kNext);
  ctx.rec.expected.pending().shadows = {ctx.shadows[1]};
  Flow flow = run(ctx);
  if (flow == Flow::kNext) result = ctx.rec.callees.returned();
  return flow;
}

// True for throw(type, value, traceback) with the exception's own traceback, which is the same as
// throw(value).
bool throwsValue(CallContext& ctx) {
  if (ctx.total() != 4 || !PyExceptionInstance_Check(ctx.args[2])) return false;
  PyObject* own = pyapi::partsOf(ctx.args[2]).traceback;
  return ctx.args[1] == PyExceptionInstance_Class(ctx.args[2]) &&
         ctx.args[3] == (own != nullptr ? own : Py_None);
}

Flow throwModel(CallContext& ctx, Shadow& result) {
  Virtual* generator = waiting(ctx);
  bool known = generator != nullptr && generator->frame->act != nullptr && !delegates(ctx.args[0]) &&
               (ctx.total() == 2 || throwsValue(ctx)) && ctx.kwnames == nullptr;
  if (!known) return opaqueModel(ctx, result);
  noteRaised(ctx.rec, ctx.args[ctx.total() == 2 ? 1 : 2], false);
  announce(ctx, *generator, ir::ReturnAction::kNext);
  Flow flow = run(ctx);
  if (flow == Flow::kNext) result = ctx.rec.callees.returned();
  return flow;
}

Flow closeModel(CallContext& ctx, Shadow& result) {
  Virtual* generator = waiting(ctx);
  bool started = generator != nullptr && generator->frame->act != nullptr;
  bool finished = ctx.shadows[0].isVirtual() && generator == nullptr &&
                  ctx.rec.objects.virtualOf(ctx.shadows[0]).kind == VirtualKind::kGenerator;
  result = Shadow::constant();
  if (finished) return run(ctx);
  if (generator == nullptr) return opaqueModel(ctx, result);
  if (delegates(ctx.args[0])) {  // the inner ones are closed first
    const WatchedGenerators::Closing closing(ctx.rec.watched);
    return run(ctx);
  }
  if (started) {
    announce(ctx, *generator, ir::ReturnAction::kClose);
  } else {
    generator->frame.reset();
  }
  return run(ctx);
}

constexpr ModelRow kRows[] = {
    {"types.GeneratorType.send", sendModel, gives(kAnItem).raises(kFromFunction)},
    {"types.GeneratorType.throw", throwModel, gives(kAnItem).raises(kFromFunction)},
    {"types.GeneratorType.close", closeModel, gives("None").raises(kFromFunction)},
};

}  // namespace

void registerGeneratorModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
