// A finished recording (recording/recording.h) that is ready to run: its guards, replay and side traces.
//
// Ownership: a TraceCache owns its CompiledTraces by shared_ptr; a running call holds one more reference, so
// that eviction and reset() never free a trace under a thread. Constants: immutable objects, code objects,
// functions and types are held strongly; other user objects by weak reference (see ConstTable). Threads:
// constant after install(), except the counters and the guard memo, which are written under the GIL.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "recording/recording.h"
#include "runtime/guard_program.h"
#include "runtime/replay.h"
#include "runtime/rereads.h"
#include "runtime/side_traces.h"

namespace kintsugi::runtime {

// The guards that have told calls of a callable apart, by guardHash().
struct DistinguishingGuards {
  std::unordered_set<uint64_t> guards;
  uint64_t version = 0;  // of the set
};
// Of what a guard speaks of: the same in all traces of a callable.
uint64_t guardHash(const recording::Recording& recording, const guard::Guard& guard);

class CompiledTrace : public std::enable_shared_from_this<CompiledTrace> {
 public:
  explicit CompiledTrace(recording::Recording recording);

  const recording::Recording& recording() const { return recording_; }
  const ir::Trace& trace() const { return recording_.document.trace; }
  GuardProgram& guards() { return guards_; }
  // Do the guards at entry let the call in? Then `slots` is filled. `only` (may be null): no others are
  // checked. `bypassRunners`: tensors that nothing guards are others than were recorded, so that only replay
  // may run.
  bool entryGuardsHold(const pyapi::Arguments& args, const DistinguishingGuards* only, SlotArray slots,
                       bool& bypassRunners);
  bool unguardedDiffer(guard::BlockId block, PyObject* const* slots) const {
    return !unguarded_.empty() && differ(unguarded_, block, slots);
  }
  // What a run asks in the middle, when others may have changed what it has read.
  Rereads& rereads() { return rereads_; }
  ReplayProgram& replay() { return replay_; }
  SideTraces& sides() { return sides_; }
  const SideTraces& sides() const { return sides_; }
  // Counts the traces of the process, from 1: what logs and events call this one.
  uint32_t number() const { return number_; }
  // The place of the entry, as a stack text of the event stream; looked up once.
  uint32_t entryText();
  // For the cycle collector: what this trace and its side traces hold.
  int traverse(visitproc visit, void* arg) const;

  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> sideExits{0};
  // Neither it nor a side trace has a tensor operation: its calls need not run along it.
  std::atomic<bool> idle{false};
  std::atomic<uint32_t> idleCalls{0};
  std::atomic<bool> dead{
      false};  // invalidated: an object that it needs has died, or an internal check failed

 private:
  std::vector<guard::Guard> watchable(const std::vector<guard::Guard>& guards) const;
  bool differ(const std::vector<guard::Guard>& guards, guard::BlockId block, PyObject* const* slots) const;

  recording::Recording recording_;
  GuardProgram guards_;
  ReplayProgram replay_;
  SideTraces sides_;
  std::vector<guard::Guard> unguarded_;  // of recording_.unguarded, those whose tensors a run reads
  // The guards of DistinguishingGuards alone, in its version `leanVersion_`, and those on tensors that it
  // leaves out.
  std::unique_ptr<GuardProgram> lean_;
  uint64_t leanVersion_ = 0;
  std::vector<guard::Guard> leanUnguarded_;
  Rereads rereads_;
  const uint32_t number_;
  uint32_t entryText_ = 0;
};

}  // namespace kintsugi::runtime
