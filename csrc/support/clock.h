// The clock by which logs, events and statistics of passes measure: it never goes back, and its zero has no
// meaning.
//
//   const uint64_t start = nowNs();   ...   took = nowNs() - start;
//
// Any thread; no GIL.
#pragma once

#include <chrono>
#include <cstdint>

namespace kintsugi {

inline uint64_t nowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace kintsugi
