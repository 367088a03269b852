// Allowance: limits an expensive action (recording a side trace) by how much earlier ones have paid back.
//
// Each action costs `price` calls and adds them to a debt. Each call that runs through on what was recorded
// pays one back. While the debt is below the allowance, the action is allowed at once; above it,
// opportunities are skipped with exponential back-off, so that what never pays costs less and less. The debt
// is capped: an action that starts to pay is soon allowed again.
//
//   if (allowance.allows(completeRuns)) {   // a call has left its trace
//     recordSideTrace();
//     allowance.spend();
//   }
//
// Plain data, owned by the callable. Threads: not safe; the GIL protects it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "support/backoff.h"

namespace kintsugi {

class Allowance {
 public:
  // `price`: calls that one action costs; `atOnce`: so many actions need not have paid yet.
  Allowance(uint64_t price, uint64_t atOnce) : price_(price), most_(price * atOnce) {}

  // At an opportunity, with the calls that have paid since the last one.
  bool allows(uint64_t paid) {
    debt_ -= std::min(debt_, paid);
    if (debt_ < most_) {
      backoff_.succeeded();
      return true;
    }
    return !backoff_.passes();
  }
  void spend() {
    // The debt is at most twice the allowance, so that an action which begins to pay is soon allowed again.
    debt_ = std::min(debt_ + price_, 2 * most_);
    if (debt_ >= most_) {
      backoff_.failed();
    }
  }

 private:
  uint64_t price_;
  uint64_t most_;
  uint64_t debt_ = 0;
  Backoff backoff_{1};
};

}  // namespace kintsugi
