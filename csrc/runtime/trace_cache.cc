#include "runtime/trace_cache.h"

#include <algorithm>

#include "pyapi/plain.h"
#include "pyapi/text.h"
#include "support/check.h"

namespace kintsugi::runtime {

namespace {

// Guarded by the GIL. Never destroyed: caches of interpreter-lifetime objects may outlive static destruction.
std::vector<TraceCache*>& allCaches() {
  static auto* caches = new std::vector<TraceCache*>();
  return *caches;
}

bool shapeMatches(const recording::Recording& recording, const pyapi::Arguments& args) {
  return args.hasShape(recording.argCount, recording.kwNames.get());
}

std::string shapeText(size_t nargs, PyObject* kwnames) {
  std::string text = std::to_string(nargs) + " positional arguments";
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    text += (i == 0 ? " and keywords " : ", ") + pyapi::utf8(PyTuple_GET_ITEM(kwnames, i));
  }
  return text;
}

std::string nameOf(const ir::Trace& trace) {
  return trace.file + ":" + std::to_string(trace.line) + " " + trace.function;
}

}  // namespace

TraceCache::TraceCache(size_t limit) : limit_(limit == 0 ? 1 : limit) { allCaches().push_back(this); }

TraceCache::~TraceCache() {
  std::erase(allCaches(), this);
  clear();
}

std::shared_ptr<CompiledTrace> TraceCache::lookup(const pyapi::Arguments& args, SlotBuffer& slots,
                                                  const DistinguishingGuards* only) {
  bool anyDead = false;
  for (size_t i = 0; i < entries_.size(); ++i) {
    // A copy of the pointer: a check may drop objects of the last one, and their finalizers may clear this
    // cache.
    std::shared_ptr<CompiledTrace> trace = entries_[i].trace;
    if (trace->dead.load(std::memory_order_relaxed)) {
      anyDead = true;
      continue;
    }
    const recording::Recording& recording = trace->recording();
    if (!shapeMatches(recording, args)) {
      continue;
    }
    if (trace->entryGuardsHold(args, only, slots.reserve(recording.document.sources.nodes.size()),
                               slots.bypassRunners)) {
      noteHit(trace.get(), i);
      return trace;
    }
  }
  misses_.fetch_add(1, std::memory_order_relaxed);
  if (anyDead) {
    removeDead();
  }
  return nullptr;
}

void TraceCache::noteHit(const CompiledTrace* trace, size_t position) {
  hits_.fetch_add(1, std::memory_order_relaxed);
  if (position >= entries_.size() || entries_[position].trace.get() != trace) {
    return;
  }
  Entry& entry = entries_[position];
  entry.lastUsed = ++clock_;
  const uint64_t hits = entry.trace->hits.fetch_add(1, std::memory_order_relaxed) + 1;
  if (position > 0 && hits > entries_[position - 1].trace->hits.load(std::memory_order_relaxed)) {
    std::swap(entry, entries_[position - 1]);
  }
}

GuardFailure explainMiss(CompiledTrace& trace, const pyapi::Arguments& args) {
  const recording::Recording& recording = trace.recording();
  if (trace.dead.load(std::memory_order_relaxed)) {
    return {ir::kNone, "the trace's objects alive", "one of them is gone"};
  }
  if (!shapeMatches(recording, args)) {
    return {ir::kNone, shapeText(recording.argCount, recording.kwNames.get()),
            shapeText(args.positional(), args.kwnames())};
  }
  GuardFailure failure = trace.guards().explainFailure(0, args, nullptr);
  if (failure.guard == ir::kNone && failure.expected.empty()) {  // its guards hold, as far as it has any
    failure.expected = "inputs of the kinds that were recorded";
    failure.seen = "another kind";
  }
  return failure;
}

const std::vector<MissReason>& TraceCache::explainMiss(const pyapi::Arguments& args) {
  std::vector<MissReason> reasons;
  for (const auto& trace : traces()) {
    reasons.push_back({nameOf(trace->trace()), runtime::explainMiss(*trace, args)});
  }
  lastMiss_ = std::move(reasons);
  return lastMiss_;
}

bool TraceCache::beginRecording() {
  const bool free = !recording_.exchange(true, std::memory_order_acquire);
  if (!free) {
    busy_.fetch_add(1, std::memory_order_relaxed);
  }
  return free;
}

void TraceCache::endRecording() { recording_.store(false, std::memory_order_release); }

std::vector<std::shared_ptr<CompiledTrace>> TraceCache::insert(std::shared_ptr<CompiledTrace> trace) {
  KINTSUGI_CHECK(trace != nullptr && trace->recording().start == 0,
                 "a trace that does not begin at the call");
  removeDead();
  std::vector<std::shared_ptr<CompiledTrace>> evicted;
  while (entries_.size() >= limit_) {
    auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                   [](const Entry& a, const Entry& b) { return a.lastUsed < b.lastUsed; });
    evicted.push_back(std::move(oldest->trace));
    entries_.erase(oldest);
    evictions_.fetch_add(1, std::memory_order_relaxed);
  }
  if (installed_++ > 0) {
    recompiles_.fetch_add(1, std::memory_order_relaxed);
  }
  entries_.push_back({std::move(trace), ++clock_});
  traceCount_.store(entries_.size(), std::memory_order_relaxed);
  return evicted;  // freed by the caller, when this cache is consistent again
}

void TraceCache::removeDead() {
  std::vector<Entry> gone;
  for (size_t i = entries_.size(); i-- > 0;) {
    if (entries_[i].trace->dead.load(std::memory_order_relaxed)) {
      gone.push_back(std::move(entries_[i]));
      entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  traceCount_.store(entries_.size(), std::memory_order_relaxed);
}

void TraceCache::clear() {
  std::vector<Entry> gone;
  gone.swap(entries_);
  std::vector<MissReason>().swap(lastMiss_);
  installed_ = 0;
  traceCount_.store(0, std::memory_order_relaxed);
  // `gone` is freed last; a finalizer may even delete this cache.
}

std::vector<std::shared_ptr<CompiledTrace>> TraceCache::traces() const {
  std::vector<std::shared_ptr<CompiledTrace>> out;
  for (const Entry& entry : entries_) {
    out.push_back(entry.trace);
  }
  return out;
}

int TraceCache::traverse(visitproc visit, void* arg) const {
  for (const Entry& entry : entries_) {
    if (const int stop = entry.trace->traverse(visit, arg)) return stop;
  }
  return 0;
}

CacheStats TraceCache::stats() const {
  CacheStats stats;
  stats.hits = hits_.load(std::memory_order_relaxed);
  stats.misses = misses_.load(std::memory_order_relaxed);
  stats.recompiles = recompiles_.load(std::memory_order_relaxed);
  stats.evictions = evictions_.load(std::memory_order_relaxed);
  stats.busy = busy_.load(std::memory_order_relaxed);
  stats.traces = traceCount_.load(std::memory_order_relaxed);
  return stats;
}

void TraceCache::clearAll() {
  // Freeing traces may run code that makes and deletes caches; start over until all are empty, but not
  // forever.
  constexpr int kMaxPasses = 8;
  bool again = true;
  for (int pass = 0; again && pass < kMaxPasses; ++pass) {
    again = false;
    for (size_t i = 0; i < allCaches().size(); ++i) {
      if (!allCaches()[i]->entries_.empty()) {
        again = true;
        allCaches()[i]->clear();
      }
    }
  }
}

void TraceCache::forgetRecordings() {
  for (TraceCache* cache : allCaches()) {
    cache->endRecording();
  }
}

CacheStats TraceCache::totals() {
  CacheStats sum;
  for (const TraceCache* cache : allCaches()) {
    const CacheStats one = cache->stats();
    sum.hits += one.hits;
    sum.misses += one.misses;
    sum.recompiles += one.recompiles;
    sum.evictions += one.evictions;
    sum.busy += one.busy;
    sum.traces += one.traces;
  }
  return sum;
}

}  // namespace kintsugi::runtime
