#include "runtime/compiled_trace.h"

#include <algorithm>

#include "runtime/replay_program.h"
#include "runtime/run_events.h"
#include "support/check.h"

namespace kintsugi::runtime {

namespace {
std::atomic<uint32_t> tracesMade{0};
}

namespace {

// The tables beside the text belong to it: guards and replay index them without checking again.
recording::Recording checked(recording::Recording recording) {
  const guard::Document& document = recording.document;
  KINTSUGI_CHECK(recording.consts.size() == document.trace.constCount, recording.consts.size(),
                 " constants for ", document.trace.constCount);
  KINTSUGI_CHECK(recording.start < document.trace.code.size(), "it begins at ", recording.start, " of ",
                 document.trace.code.size(), " instructions");
  KINTSUGI_CHECK(recording.firstBlock < std::max<guard::BlockId>(document.guards.blockCount, 1),
                 "its first block is ", recording.firstBlock, " of ", document.guards.blockCount);
  return recording;
}

}  // namespace

CompiledTrace::CompiledTrace(recording::Recording recording)
    : recording_(checked(std::move(recording))),
      guards_(recording_),
      replay_(recording_),
      unguarded_(watchable(recording_.unguarded)),
      rereads_(recording_),
      number_(tracesMade.fetch_add(1, std::memory_order_relaxed) + 1) {}

namespace {

bool isOnTensor(const guard::Guard& g) {
  return g.kind == guard::GuardKind::kTensor || g.kind == guard::GuardKind::kTensorRank;
}

}  // namespace

uint64_t guardHash(const recording::Recording& recording, const guard::Guard& g) {
  if (g.source != ir::kNone) return recording.sourceHashes[g.source];
  const auto kind = static_cast<uint64_t>(g.kind) + 1;
  return g.key == ir::kNone ? kind : reinterpret_cast<uint64_t>(recording.consts[g.key].get()) ^ kind << 56;
}

// The guards on tensors that a run reads as inputs, in the guard's block or an earlier one. (The slots of
// other sources are not filled, so they can't be compared.)
std::vector<guard::Guard> CompiledTrace::watchable(const std::vector<guard::Guard>& guards) const {
  std::vector<guard::Guard> out;
  for (const guard::Guard& g : guards) {
    bool loaded = false;
    for (guard::BlockId block = 0; isOnTensor(g) && block <= g.block; ++block)
      loaded = loaded || loadsInput(replay_.code(), block, g.source);
    if (loaded) out.push_back(g);
  }
  return out;
}

bool CompiledTrace::differ(const std::vector<guard::Guard>& guards, guard::BlockId block,
                           PyObject* const* slots) const {
  return std::any_of(guards.begin(), guards.end(), [&](const guard::Guard& g) {
    return g.block == block &&
           !torchapi::matches(slots[g.source],
                              recording_.document.trace.metas.at(static_cast<size_t>(g.number)),
                              g.kind == guard::GuardKind::kTensor);
  });
}

namespace {

// Checks of such programs that are under way, on all threads (GIL). A check may run finalizers, and these may
// call the callable again: what is being checked must not be made again meanwhile.
int leanChecks = 0;

}  // namespace

bool CompiledTrace::entryGuardsHold(const pyapi::Arguments& args, const DistinguishingGuards* only,
                                    SlotArray slots, bool& bypassRunners) {
  bypassRunners = false;
  const bool stale = only != nullptr && (!lean_ || leanVersion_ != only->version);
  if (only == nullptr || (stale && leanChecks > 0)) {
    if (!guards_.check(0, args, nullptr, slots)) return false;
    if (!recording_.filtered) return true;
    if (!takesInputs(replay_.code(), slots)) return false;
    bypassRunners = unguardedDiffer(0, slots);
    return true;
  }
  if (stale) {
    const auto chosen = [&](const guard::Guard& g) {
      return g.kind == guard::GuardKind::kOpenAttribute || only->guards.contains(guardHash(recording_, g));
    };
    std::vector<guard::Guard> left = recording_.unguarded;
    for (const guard::Guard& g : recording_.document.guards.guards) {
      if (g.block == 0 && !chosen(g)) left.push_back(g);
    }
    lean_ = std::make_unique<GuardProgram>(recording_, chosen);
    leanVersion_ = only->version;
    leanUnguarded_ = watchable(left);
  }
  ++leanChecks;
  const bool good = lean_->check(0, args, nullptr, slots);
  --leanChecks;
  if (!good || !takesInputs(replay_.code(), slots)) return false;
  bypassRunners = differ(leanUnguarded_, 0, slots);
  return true;
}

uint32_t CompiledTrace::entryText() {
  if (entryText_ == 0) entryText_ = entryOf(*this);
  return entryText_;
}

int CompiledTrace::traverse(visitproc visit, void* arg) const {
  for (const pyapi::Ref<>& constant : recording_.consts) Py_VISIT(constant.get());
  Py_VISIT(recording_.kwNames.get());
  int stop = guards_.traverse(visit, arg);
  if (stop == 0 && lean_) stop = lean_->traverse(visit, arg);
  if (stop == 0) stop = rereads_.traverse(visit, arg);
  sides_.each([&](uint32_t, const SideLink& link) {
    if (stop == 0) stop = link.trace->traverse(visit, arg);
  });
  return stop;
}

}  // namespace kintsugi::runtime
