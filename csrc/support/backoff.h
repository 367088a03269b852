// How long to leave something alone that costs more than it brings: after n failures in a row, 2^n - 1
// occasions are let pass, up to a limit. No failure is for good.
//
// Plain data, not thread-safe. Example: if (!backoff.passes()) worked = record(); worked ?
// backoff.succeeded() : backoff.failed();
#pragma once

#include <algorithm>
#include <cstdint>

namespace kintsugi {

class Backoff {
 public:
  static constexpr uint32_t kMost = 1023;

  // `first`: how many occasions pass after the first failure.
  explicit Backoff(uint32_t first = 0) : first_(first), next_(first) {}

  // Is this occasion to be let pass?
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
