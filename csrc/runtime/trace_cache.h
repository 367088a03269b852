// The root traces of one compiled callable: finds the one whose guards hold, keeps their number bounded, and
// lets one thread at a time record.
//
// Rules: traces are tried in the order of their hits (a trace that hits more often than the one before it
// changes places with it). Past the limit the least recently used trace is evicted; a callable is never left
// to eager mode for having seen too many values. While a thread records (which runs Python code, so that
// other threads get the GIL), their calls that match no trace run eagerly; no thread ever waits.
//
// Ownership: traces are shared_ptr: a running call holds one, so that eviction and clear() never free a trace
// under it. Threads: the GIL is needed everywhere but for stats(). Freeing a trace may run finalizers, thus
// any code: all members are consistent at that point. Invalidation: entries vanish by eviction, clear()
// and when a trace is marked dead.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

// Room for the resolved sources of one call: on the stack for small traces. Contents are undefined until a
// check wrote them.
class SlotBuffer {
 public:
  SlotBuffer() = default;
  SlotBuffer(const SlotBuffer&) = delete;
  SlotBuffer& operator=(const SlotBuffer&) = delete;

  SlotArray reserve(size_t count) {
    if (count > capacity_) {
      heap_ = std::make_unique_for_overwrite<PyObject*[]>(count);
      capacity_ = count;
      data_ = heap_.get();
    }
    return data_;
  }
  SlotArray data() { return data_; }

  bool bypassRunners = false;  // of the trace that was found: see CompiledTrace::entryGuardsHold()

 private:
  static constexpr size_t kInline = 32;
  std::array<PyObject*, kInline> inline_;
  std::unique_ptr<PyObject*[]> heap_;
  size_t capacity_ = kInline;
  SlotArray data_ = inline_.data();
};

// Why a trace did not serve a call.
struct MissReason {
  std::string trace;  // "model.py:12 forward"
  GuardFailure failure;
};

// Why `trace` does not serve a call with these arguments: an object of it is gone, the call has other
// arguments than the one that was recorded, or a guard fails. To be asked before the call runs.
GuardFailure explainMiss(CompiledTrace& trace, const pyapi::Arguments& args);

struct CacheStats {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t recompiles = 0;  // traces installed beyond the first
  uint64_t evictions = 0;
  uint64_t busy = 0;  // misses while another thread was recording
  size_t traces = 0;
};

class TraceCache {
 public:
  static constexpr size_t kDefaultLimit = 8;

  explicit TraceCache(size_t limit = kDefaultLimit);
  ~TraceCache();
  TraceCache(const TraceCache&) = delete;
  TraceCache& operator=(const TraceCache&) = delete;

  // A trace for a call with these arguments. Null: none. On a hit the trace's sources of block 0 are in
  // `slots`, borrowed from what the arguments hold.
  // `only` (may be null): guards that are checked, and no others.
  std::shared_ptr<CompiledTrace> lookup(const pyapi::Arguments& args, SlotBuffer& slots,
                                        const DistinguishingGuards* only = nullptr);

  // Why lookup() found nothing, newest trace last; to be asked before the call runs, since it changes the
  // state. Also kept for lastMiss().
  const std::vector<MissReason>& explainMiss(const pyapi::Arguments& args);
  const std::vector<MissReason>& lastMiss() const { return lastMiss_; }

  // One recording at a time. False: another call is recording (maybe further up this thread's stack): run
  // eagerly.
  bool beginRecording();
  void endRecording();
  bool isRecording() const { return recording_.load(std::memory_order_relaxed); }

  // Installs a trace; returns those that had to go (usually one or none).
  std::vector<std::shared_ptr<CompiledTrace>> insert(std::shared_ptr<CompiledTrace> trace);
  void setLimit(size_t limit) { limit_ = limit == 0 ? 1 : limit; }
  size_t limit() const { return limit_; }
  void clear();

  std::vector<std::shared_ptr<CompiledTrace>> traces() const;
  int traverse(visitproc visit, void* arg) const;  // for the cycle collector
  CacheStats stats() const;

  // All caches of the process. After a fork, the child has none of the threads that were recording.
  static void clearAll();
  static void forgetRecordings();
  static CacheStats totals();

 private:
  struct Entry {
    std::shared_ptr<CompiledTrace> trace;
    uint64_t lastUsed = 0;
  };

  void noteHit(const CompiledTrace* trace, size_t position);
  void removeDead();

  std::vector<Entry> entries_;
  std::vector<MissReason> lastMiss_;
  size_t limit_;
  uint64_t clock_ = 0;
  uint64_t installed_ = 0;
  std::atomic<bool> recording_{false};
  std::atomic<size_t> traceCount_{0};
  std::atomic<uint64_t> hits_{0};
  std::atomic<uint64_t> misses_{0};
  std::atomic<uint64_t> recompiles_{0};
  std::atomic<uint64_t> evictions_{0};
  std::atomic<uint64_t> busy_{0};
};

// Ends the recording when it goes out of scope.
class RecordingScope {
 public:
  explicit RecordingScope(TraceCache& cache) : cache_(cache.beginRecording() ? &cache : nullptr) {}
  ~RecordingScope() {
    if (cache_ != nullptr) {
      cache_->endRecording();
    }
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

  explicit operator bool() const { return cache_ != nullptr; }

 private:
  TraceCache* cache_;
};

}  // namespace kintsugi::runtime
