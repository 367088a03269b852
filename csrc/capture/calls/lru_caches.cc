#include "capture/calls/lru_caches.h"

#include <vector>

#include "capture/calls/model.h"
#include "capture/record_context.h"
#include "capture/tables/pauses.h"
#include "pyapi/known_objects.h"
#include "pyapi/lru_cache.h"

namespace kintsugi::capture {

using guard::SourceKind;

namespace {

// True if the arguments may be pinned by identity: they are constants, plain values, or objects that are not
// arguments of the compiled callable.
bool canPinArguments(CallContext& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    const Shadow shadow = ctx.shadows.any(i);
    PyObject* value = ctx.args.any(i);
    if (ctx.rec.guards.comesFromStep(shadow) || !ctx.rec.guards.canPinDeep(shadow, value)) return false;
    if (ctx.rec.guards.isArgument(shadow) && !isPlainDeep(value) && !isIdentityValue(value)) return false;
  }
  return true;
}

bool pinArguments(CallContext& ctx) {
  if (ctx.callableShadow.isSource() && !ctx.rec.guards.pin(ctx.callableShadow, ctx.callable)) return false;
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow shadow = ctx.shadows.any(i);
    if (!ctx.rec.guards.pinDeep(shadow, ctx.args.any(i))) return false;
  }
  return true;
}

// The result of a hit, read from the entry.
Shadow resultIn(RecordContext& rec, PyObject* cache, PyObject* key, PyObject* entry) {
  Shadow found = rec.objects.dictEntry(rec.guards.pinnedRoot(cache), cache, key, entry);
  if (rec.live() && pyapi::isCacheLink(entry)) {
    rec.guards.guardType(found, entry);
    found = rec.guards.readSource(SourceKind::kMember, rec.guards.sourceOf(found, entry),
                                  pyapi::linkResultField(), 0, pyapi::resultOfEntry(entry));
  }
  return found;
}

// The cache has the entry, which is the call's result.
Flow hit(CallContext& ctx, PyObject* cache, PyObject* key, PyObject* entry, Shadow& result) {
  const Shadow found = resultIn(ctx.rec, cache, key, entry);
  if (!ctx.rec.live()) return ctx.rec.execute(ctx.act, ctx.instr);
  const Shadows constants(ctx.total(), Shadow::constant());
  ctx.shadows.replace(constants.data());
  result = found;
  return ctx.rec.steps.lookup(ctx);
}

// The first call finds out the layout of CPython's cache with a cache of its own, which runs code of
// functools.
PyObject* cacheOf(CallContext& ctx) {
  const Paused paused(ctx.rec.pauses);
  return pyapi::cacheOf(ctx.callable);
}

// A call that no guard says to be a hit: in another run it may call the program's function, which may change
// anything. So everything is read again behind it.
Flow mayMiss(CallContext& ctx, Shadow& result) { return blockingModel(ctx, result); }

// Runs the program's function for a miss, and begins what is written for later runs, which find the entry.
// Null: the call has raised, or was written as a step, since the function has emptied the cache, or another
// thread has.
pyapi::Ref<> runMiss(CallContext& ctx, PyObject* cache, PyObject* key, StepRun& run, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (!rec.steps.runStep(ctx, nullptr, run)) return {};
  pyapi::Ref<> entry = pyapi::newRef(pyapi::entryOf(cache, key));
  if (!entry || !rec.live() || pyapi::resultOfEntry(entry.get()) != ctx.act.peek(ctx.resultDepth)) {
    rec.steps.writeStep(ctx, run, result);
    return {};
  }
  rec.steps.beginDoneOnce(ctx, run);
  return entry;
}

// A miss of the first call: later runs find the result in the cache. So the program's function runs now, and
// the call is written as a hit. Guards are read again behind it, since the function may have changed
// anything.
Flow missAtFirst(CallContext& ctx, PyObject* cache, PyObject* key, Shadow& result) {
  RecordContext& rec = ctx.rec;
  const Shadows constants(ctx.total(), Shadow::constant());
  ctx.shadows.replace(constants.data());
  StepRun run;
  const pyapi::Ref<> entry = runMiss(ctx, cache, key, run, result);
  if (!entry) return run.flow;
  if (rec.live()) result = resultIn(rec, cache, key, entry.get());
  rec.steps.writeDoneOnce(ctx, run);
  return run.flow;
}

// May a run ask the cache whether it has the call's result? Then the arguments that differ from run to run
// are numbers and tuples, which can be made twice, and the others are older than the trace.
bool canAsk(CallContext& ctx) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    const Shadow shadow = ctx.shadows.any(i);
    const bool made = shadow.isVirtual() && ctx.rec.objects.virtualOf(shadow).kind != VirtualKind::kTuple;
    if (made || torchapi::isTensor(ctx.args.any(i))) return false;
  }
  return true;
}

// What is asked: pyapi::cacheHasCall() and its arguments. Nothing: they can't be made in a run.
std::optional<std::vector<ir::Operand>> questionOf(CallContext& ctx) {
  RecordContext& rec = ctx.rec;
  std::vector<ir::Operand> operands;
  if (!rec.steps.quietOperands(ctx, operands)) return std::nullopt;
  const ir::ConstId names = rec.guards.constId(ctx.kwnames == nullptr ? Py_None : ctx.kwnames);
  operands.insert(operands.begin() + 1, ir::Operand::constant(names));
  return operands;
}

// The arguments differ from run to run. A run that finds the result goes on; another leaves the trace in
// front of the call. A hit runs no Python code, so nothing is read again behind it.
Flow hitInThisRun(CallContext& ctx, const std::vector<ir::Operand>& question, Shadow& result) {
  if (!ctx.rec.guards.pinAnswerOf(pyapi::cacheHasCall(), question, Py_True))
    return ctx.rec.execute(ctx.act, ctx.instr);
  return knownModel(ctx, result);
}

// The same where the recorded call has missed. What has left a trace here is recorded as a call that may
// miss: it has met a new key, and so will others.
Flow missInThisRun(CallContext& ctx, PyObject* cache, PyObject* key, const std::vector<ir::Operand>& question,
                   Shadow& result) {
  RecordContext& rec = ctx.rec;
  StepRun run;
  if (!runMiss(ctx, cache, key, run, result)) return run.flow;
  if (!rec.live() || !rec.guards.pinAnswerAt(run.snap, pyapi::cacheHasCall(), question, Py_True))
    return run.flow;
  result = rec.steps.appendCall(ctx, CallKind::kKnown, run.operands, run.snap, ctx.act.peek(ctx.resultDepth));
  return run.flow;
}

// Is this the first miss of a key that will be kept? Where the program empties its cache, or has more keys
// than the cache holds, it misses in each call.
bool isMissedAtFirst(CallContext& ctx, PyObject* key) {
  const Paused paused(ctx.rec.pauses);
  return !pyapi::isFull(ctx.callable) && pyapi::noteMiss(ctx.callable, key);
}

// A call whose arguments can't be pinned.
Flow varyingCall(CallContext& ctx, PyObject* cache, Shadow& result) {
  const std::optional<std::vector<ir::Operand>> question = canAsk(ctx) ? questionOf(ctx) : std::nullopt;
  const pyapi::Ref<> key =
      question ? pyapi::cacheKey(ctx.callable, {ctx.args.begin(), ctx.total()}, ctx.kwnames) : pyapi::Ref<>();
  if (!key) return mayMiss(ctx, result);
  if (pyapi::entryOf(cache, key.get()) != nullptr) return hitInThisRun(ctx, *question, result);
  if (ctx.rec.steps.isSideTrace() || !isMissedAtFirst(ctx, key.get())) return mayMiss(ctx, result);
  return missInThisRun(ctx, cache, key.get(), *question, result);
}

}  // namespace

std::optional<Flow> cachedCall(CallContext& ctx, Shadow& result) {
  if (!pyapi::isA(ctx.callable, pyapi::Known::kLruCacheWrapper)) return std::nullopt;
  RecordContext& rec = ctx.rec;
  PyObject* cache = ctx.callableShadow.isValue() ? nullptr : cacheOf(ctx);
  if (cache == nullptr || !ctx.pushes || rec.guards.comesFromStep(ctx.callableShadow))
    return mayMiss(ctx, result);
  if (!canPinArguments(ctx)) return varyingCall(ctx, cache, result);
  const pyapi::Ref<> key = pyapi::cacheKey(ctx.callable, {ctx.args.begin(), ctx.total()}, ctx.kwnames);
  if (!key) return mayMiss(ctx, result);
  if (PyObject* entry = pyapi::entryOf(cache, key.get())) {
    const pyapi::Ref<> kept = pyapi::newRef(entry);
    return pinArguments(ctx) ? hit(ctx, cache, key.get(), entry, result) : rec.execute(ctx.act, ctx.instr);
  }
  if (!isMissedAtFirst(ctx, key.get())) return mayMiss(ctx, result);
  return pinArguments(ctx) ? missAtFirst(ctx, cache, key.get(), result) : rec.execute(ctx.act, ctx.instr);
}

}  // namespace kintsugi::capture
