// Whether something that costs as much as many calls do is still worth it: each time adds to a debt, and each
// call that went well because of the times before pays a part of it back. Within the allowance it may be done
// at once; beyond it, ever more occasions are let pass, so that what never pays costs less and less of the
// time. No debt is for good.
//
// Plain data, not thread-safe. Example, a call that left its trace: if (allowance.allows(completeRuns)) {
// record(); allowance.spend(); }
#pragma once

#include <algorithm>
#include <cstdint>

#include "support/backoff.h"

namespace kintsugi {

class Allowance {
 public:
  // `price`: calls that one time costs; `atOnce`: times that need not have paid yet.
  Allowance(uint64_t price, uint64_t atOnce) : price_(price), most_(price * atOnce) {}

  // An occasion, behind `paid` calls that went well since the last one.
  bool allows(uint64_t paid) {
    debt_ -= std::min(debt_, paid);
    if (debt_ < most_) {
      backoff_.succeeded();
      return true;
    }
    return !backoff_.passes();
  }
  void spend() {
    // What is owed beyond the allowance is as many calls again at most: who begins to pay is soon allowed
    // again.
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
