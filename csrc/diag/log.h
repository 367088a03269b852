// The event log: what KINTSUGI_LOGS prints and what reports are made of.
//
// A channel that is off costs one relaxed atomic load at the place that would log. Events that are on go to a
// ring buffer (the last kRingSize, for reports) and to the sink, which the bindings set (Python prints them).
//
// Ownership: the log owns the events in its ring; the sink is a plain function pointer.
// Threads/GIL: every function may be called from any thread, with or without the GIL. The sink is called
// outside the log's lock, on the thread that emits; it must take the GIL itself if it needs it. Invalidation:
// recent() returns copies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diag/diagnostic.h"

namespace kintsugi::diag::log {

enum class Channel : std::uint8_t {
  kTrace,
  kGuards,
  kGraphBreaks,
  kRecompiles,
  kGraphCode,
  kEffects,
  kPerf,
  kDynamic,
  kGraphPasses,
};
inline constexpr std::size_t kChannelCount = 9;
inline constexpr std::size_t kRingSize = 512;

struct Event {
  Channel channel = Channel::kTrace;
  std::uint64_t timeNs = 0;    // steady clock
  std::uint64_t sequence = 0;  // counts all events of the process
  std::string text;
  std::optional<Diagnostic> diagnostic;
};

using Sink = void (*)(const Event& event);

// The bit mask of the channels that are on. Only for enabled(), which has to be inline.
extern std::atomic<std::uint32_t> enabledMask;

inline bool enabled(Channel channel) {
  return ((enabledMask.load(std::memory_order_relaxed) >> static_cast<unsigned>(channel)) & 1u) != 0;
}

std::string_view channelName(Channel channel);
std::optional<Channel> findChannel(std::string_view name);

void setEnabled(Channel channel, bool on);
void disableAll();

// nullptr: events only go to the ring.
void setSink(Sink sink);

// Does nothing when the channel is off; ask enabled() first when making the text costs something.
void emit(Channel channel, std::string text);
void emit(Channel channel, Diagnostic diagnostic);

// The events still in the ring, oldest first.
std::vector<Event> recent();
void clear();

}  // namespace kintsugi::diag::log
