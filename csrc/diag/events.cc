#include "diag/events.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "support/clock.h"

namespace kintsugi::diag::events {

namespace {

constexpr std::string_view kNames[] = {
#define KTG_EVENT(id, name) name,
#include "diag/events.def"
#undef KTG_EVENT
};

// One writer (its thread), one reader (whoever holds the registry's lock).
struct Ring {
  explicit Ring(std::size_t capacity, std::uint32_t thread)
      : slots(std::make_unique<Event[]>(capacity)), mask(capacity - 1), thread(thread) {}

  std::unique_ptr<Event[]> slots;
  const std::size_t mask;
  const std::uint32_t thread;
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> read{0};
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<bool> abandoned{false};  // its thread is gone
};

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Ring>> rings;
  std::size_t capacity = kDefaultCapacity;
  std::uint32_t threads = 0;
};

struct Texts {
  std::mutex mutex;
  std::deque<std::string> texts{""};  // a deque: the views in `ids` stay where they are
  std::unordered_map<std::string_view, TextId> ids;
};

// A program that makes new texts without end must not fill the memory.
constexpr std::size_t kMostTexts = std::size_t{1} << 20;

// Never destroyed: threads that outlive static destruction may still emit.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}
Texts& texts() {
  static Texts* instance = new Texts;
  return *instance;
}

struct ThreadRing {
  std::shared_ptr<Ring> ring;
  ~ThreadRing() {
    if (ring) ring->abandoned.store(true, std::memory_order_release);
  }
};

Ring& threadRing() {
  thread_local ThreadRing mine;
  if (!mine.ring) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    mine.ring = std::make_shared<Ring>(all.capacity, ++all.threads);
    all.rings.push_back(mine.ring);
  }
  return *mine.ring;
}

}  // namespace

std::atomic<bool> enabledFlag{false};

std::string_view kindName(Kind kind) {
  const auto index = static_cast<std::size_t>(kind);
  KINTSUGI_CHECK(index < std::size(kNames), "event kind out of range: ", index);
  return kNames[index];
}

std::size_t kindCount() { return std::size(kNames); }

void start(std::size_t capacity) {
  {
    const std::lock_guard lock(registry().mutex);
    registry().capacity = std::bit_ceil(std::clamp<std::size_t>(capacity, 16, std::size_t{1} << 24));
  }
  enabledFlag.store(true, std::memory_order_relaxed);
}

void stop() { enabledFlag.store(false, std::memory_order_relaxed); }

std::uint64_t nowNs() { return kintsugi::nowNs(); }

TextId intern(std::string_view text) {
  if (text.empty()) return 0;
  Texts& all = texts();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.ids.find(text); found != all.ids.end()) return found->second;
  if (all.texts.size() >= kMostTexts) text = "(too many different texts)";
  if (const auto found = all.ids.find(text); found != all.ids.end()) return found->second;
  const auto id = static_cast<TextId>(all.texts.size());
  all.ids.emplace(all.texts.emplace_back(text), id);
  return id;
}

std::string textOf(TextId id) {
  const std::lock_guard lock(texts().mutex);
  return id < texts().texts.size() ? texts().texts[id] : std::string();
}

std::string stackText(const std::vector<SourceLoc>& frames) {
  std::string out;
  for (const SourceLoc& frame : frames) {
    if (!out.empty()) out += '\n';
    out += frame.file;
    out += '\x1f';
    out += std::to_string(frame.line);
    out += '\x1f';
    out += frame.function;
  }
  return out;
}

void emit(Event event) {
  Ring& ring = threadRing();
  const std::uint64_t at = ring.written.load(std::memory_order_relaxed);
  if (at - ring.read.load(std::memory_order_acquire) > ring.mask) {
    ring.dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  event.thread = ring.thread;
  ring.slots[at & ring.mask] = event;
  ring.written.store(at + 1, std::memory_order_release);
}

Drained drain() {
  Drained out;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const std::shared_ptr<Ring>& ring : all.rings) {
    const std::uint64_t end = ring->written.load(std::memory_order_acquire);
    std::uint64_t at = ring->read.load(std::memory_order_relaxed);
    for (; at != end; ++at) out.events.push_back(ring->slots[at & ring->mask]);
    ring->read.store(end, std::memory_order_release);
    out.dropped += ring->dropped.exchange(0, std::memory_order_relaxed);
  }
  std::erase_if(all.rings, [](const std::shared_ptr<Ring>& ring) {
    return ring->abandoned.load(std::memory_order_acquire) &&
           ring->read.load(std::memory_order_relaxed) == ring->written.load(std::memory_order_relaxed);
  });
  std::stable_sort(out.events.begin(), out.events.end(), [](const Event& a, const Event& b) {
    // What contains another comes first.
    return a.startNs != b.startNs ? a.startNs < b.startNs : a.durationNs > b.durationNs;
  });
  return out;
}

}  // namespace kintsugi::diag::events
