// Exponential back-off: after n failures in a row the next 2^n - 1 opportunities are skipped, up to a limit.
// Success starts again from the beginning, and something that always fails is still tried now and then.
//
//   if (backoff.passes()) return callEager();          // skip this opportunity
//   record() ? backoff.succeeded() : backoff.failed();
//
// Plain data, owned by whoever backs off. Threads: not safe; the owner locks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kintsugi {

class Backoff {
 public:
  static constexpr uint32_t kMost = 1023;

  // `first`: how many opportunities are skipped after the first failure.
  explicit Backoff(uint32_t first = 0) : first_(first), next_(first) {}

  // Is this opportunity to be skipped?
  bool passes() {
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  void failed() {
    left_ = next_;
    next_ = std::min(2 * next_ + 1, kMost);
  }
  void succeeded() {
    left_ = 0;
    next_ = first_;
  }

 private:
  uint32_t first_;
  uint32_t next_;
  uint32_t left_ = 0;
};

}  // namespace kintsugi
