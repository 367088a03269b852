// For benchmarks: how long a call spends in what it runs (native segments, operators of the replay). The rest
// of the call is guards and dispatch.
//
// Ownership: none. Threads: each has a clock of its own. Switched off, a span costs one load.
#pragma once

#include <cstdint>

#include "diag/events.h"

namespace kintsugi::runtime {

struct WorkClock {
  bool on = false;
  uint64_t nanoseconds = 0;
  uint64_t spans = 0;

  static WorkClock& ofThread() noexcept {
    static constinit thread_local WorkClock clock;
    return clock;
  }
};

class WorkSpan {
 public:
  WorkSpan() : start_(WorkClock::ofThread().on ? diag::events::nowNs() : 0) {}
  ~WorkSpan() {
    if (start_ != 0) [[unlikely]] {
      WorkClock& clock = WorkClock::ofThread();
      clock.nanoseconds += diag::events::nowNs() - start_;
      ++clock.spans;
    }
  }
  WorkSpan(const WorkSpan&) = delete;

 private:
  uint64_t start_;
};

// Runs the work, on the clock if that is on.
template <typename Work>
auto timed(const Work& work) {
  const WorkSpan span;
  return work();
}

}  // namespace kintsugi::runtime
