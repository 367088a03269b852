// The event stream: what the profiler, the reports and the command line are made of.
//
// Off, an event costs one relaxed load and a branch that is predicted; `if (events::on())` stands before
// everything that an event needs. On, each thread writes fixed-size records to a ring of its own, without
// locks; texts are interned once and referred to by number. A full ring drops new events and counts them:
// what was seen stays in order, and a reader that comes often enough loses nothing.
//
// Ownership: the stream owns rings and texts; both live as long as the process. Threads/GIL: emit() and
// intern() from any thread, with or without the GIL; drain() from one thread at a time (it locks).
// Invalidation: drain() returns copies. A TextId stays good for the life of the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "diag/diagnostic.h"

namespace kintsugi::diag::events {

enum class Kind : std::uint8_t {
#define KTG_EVENT(id, name) k##id,
#include "diag/events.def"
#undef KTG_EVENT
};
std::string_view kindName(Kind kind);
std::size_t kindCount();

// 0 is the empty text.
using TextId = std::uint32_t;

struct Event {
  std::uint64_t startNs = 0;  // steady clock
  std::uint64_t durationNs = 0;
  std::uint64_t extra = 0;
  std::uint32_t thread = 0;  // numbered from 1 in the order of their first event; set by emit()
  std::uint32_t trace = 0;   // number of the trace, 0: none
  TextId stack = 0;          // see stackText()
  TextId name = 0;
  TextId text = 0;
  TextId more = 0;
  Kind kind = Kind::kCall;
};

// Only for on(), which has to be inline.
extern std::atomic<bool> enabledFlag;
inline bool on() { return enabledFlag.load(std::memory_order_relaxed); }

inline constexpr std::size_t kDefaultCapacity = std::size_t{1} << 16;
// `capacity`: events a thread can hold between two drains; rounded up to a power of two. Rings that exist
// keep theirs.
void start(std::size_t capacity = kDefaultCapacity);
void stop();

std::uint64_t nowNs();
TextId intern(std::string_view text);
// The user's frames, outermost first, as `file US line US function` with newlines between them.
std::string stackText(const std::vector<SourceLoc>& frames);
void emit(Event event);

struct Drained {
  std::vector<Event> events;  // by start time
  std::uint64_t dropped = 0;  // since the last drain
};
Drained drain();
std::string textOf(TextId id);

}  // namespace kintsugi::diag::events
