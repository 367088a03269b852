#include "capture/calls/lru_caches.h"

#include <vector>

#include "capture/calls/model.h"
#include "capture/record_context.h"
#include "capture/tables/pauses.h"
#include "pyapi/known_objects.h"
#include "pyapi/lru_cache.h"
#include "pyapi/plain.h"

namespace kintsugi::capture {

using guard::SourceKind;

namespace {

PyObject* entryAt(PyObject* cache, PyObject* key) {
  Py_hash_t hash = 0;
  PyObject* entry = nullptr;
  if (!pyapi::plainHash(key, &hash)) return nullptr;
  return pyapi::lookUp(cache, key, hash, &entry) == pyapi::Lookup::kFound ? entry : nullptr;
}

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

// The cache has the entry, which is the call's result.
Flow hit(CallContext& ctx, PyObject* cache, PyObject* key, PyObject* entry, Shadow& result) {
  RecordContext& rec = ctx.rec;
  Shadow found = rec.objects.dictEntry(rec.guards.pinnedRoot(cache), cache, key, entry);
  if (rec.live() && pyapi::isCacheLink(entry)) {
    rec.guards.guardType(found, entry);
    found = rec.guards.readSource(SourceKind::kMember, rec.guards.sourceOf(found, entry),
                                  pyapi::linkResultField(), 0, pyapi::resultOfEntry(entry));
  }
  if (!rec.live()) return rec.execute(ctx.act, ctx.instr);
  const Shadows constants(ctx.total(), Shadow::constant());
  ctx.shadows.replace(constants.data());
  result = found;
  return rec.steps.quietCall(ctx);
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

}  // namespace

std::optional<Flow> cachedCall(CallContext& ctx, Shadow& result) {
  if (!pyapi::isA(ctx.callable, pyapi::Known::kLruCacheWrapper)) return std::nullopt;
  RecordContext& rec = ctx.rec;
  PyObject* cache = ctx.callableShadow.isValue() ? nullptr : cacheOf(ctx);
  if (cache == nullptr || !ctx.pushes || rec.guards.comesFromStep(ctx.callableShadow) ||
      !canPinArguments(ctx))
    return mayMiss(ctx, result);
  const pyapi::Ref<> key = pyapi::cacheKey(ctx.callable, {ctx.args.begin(), ctx.total()}, ctx.kwnames);
  if (!key) return mayMiss(ctx, result);
  if (PyObject* entry = entryAt(cache, key.get())) {
    const pyapi::Ref<> kept = pyapi::newRef(entry);
    return pinArguments(ctx) ? hit(ctx, cache, key.get(), entry, result) : rec.execute(ctx.act, ctx.instr);
  }
  return mayMiss(ctx, result);
}

}  // namespace kintsugi::capture
