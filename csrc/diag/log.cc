#include "diag/log.h"

#include <array>
#include <deque>
#include <mutex>
#include <utility>

#include "support/clock.h"

namespace kintsugi::diag::log {

namespace {

constexpr std::array<std::string_view, kChannelCount> kChannelNames = {
    "trace",   "guards", "graph_breaks", "recompiles",  "graph_code",
    "effects", "perf",   "dynamic",      "graph_passes"};

struct Ring {
  std::mutex mutex;
  std::deque<Event> events;
  std::uint64_t nextSequence = 0;
};

// Never destroyed: threads that outlive static destruction may still log.
Ring& ring() {
  static Ring* instance = new Ring;
  return *instance;
}

std::atomic<Sink> currentSink{nullptr};

void publish(Event event) {
  {
    const std::lock_guard lock(ring().mutex);
    event.sequence = ring().nextSequence++;
    ring().events.push_back(event);
    if (ring().events.size() > kRingSize) {
      ring().events.pop_front();
    }
  }
  if (const Sink sink = currentSink.load(std::memory_order_acquire)) {
    sink(event);
  }
}

}  // namespace

std::atomic<std::uint32_t> enabledMask{0};

std::string_view channelName(Channel channel) {
  const auto index = static_cast<std::size_t>(channel);
  KINTSUGI_CHECK(index < kChannelCount, "log channel out of range: ", index);
  return kChannelNames[index];
}

std::optional<Channel> findChannel(std::string_view name) {
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    if (kChannelNames[i] == name) {
      return static_cast<Channel>(i);
    }
  }
  return std::nullopt;
}

void setEnabled(Channel channel, bool on) {
  const std::uint32_t bit = 1u << static_cast<unsigned>(channel);
  if (on) {
    enabledMask.fetch_or(bit, std::memory_order_relaxed);
  } else {
    enabledMask.fetch_and(~bit, std::memory_order_relaxed);
  }
}

void disableAll() { enabledMask.store(0, std::memory_order_relaxed); }

void setSink(Sink sink) { currentSink.store(sink, std::memory_order_release); }

void emit(Channel channel, std::string text) {
  if (!enabled(channel)) {
    return;
  }
  publish(Event{channel, nowNs(), 0, std::move(text), std::nullopt});
}

void emit(Channel channel, Diagnostic diagnostic) {
  if (!enabled(channel)) {
    return;
  }
  std::string text = diagnostic.format();
  publish(Event{channel, nowNs(), 0, std::move(text), std::move(diagnostic)});
}

std::vector<Event> recent() {
  const std::lock_guard lock(ring().mutex);
  return {ring().events.begin(), ring().events.end()};
}

void clear() {
  const std::lock_guard lock(ring().mutex);
  ring().events.clear();
}

}  // namespace kintsugi::diag::log
