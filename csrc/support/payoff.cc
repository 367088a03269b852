#include "support/payoff.h"

#include <algorithm>
#include <vector>

namespace kintsugi {

namespace {

// Waits are doubled each time that traces have lost. These bounds keep them from overflowing: nobody makes so
// many calls.
constexpr uint64_t kMostPatience = uint64_t{1} << 32;
constexpr uint64_t kMostDoublings = 12;

// The lower one of the two in the middle.
template <size_t N>
uint64_t median(const std::array<uint64_t, N>& times, size_t count) {
  std::vector<uint64_t> sorted(times.begin(), times.begin() + count);
  std::nth_element(sorted.begin(), sorted.begin() + (count - 1) / 2, sorted.end());
  return sorted[(count - 1) / 2];
}

}  // namespace

void Payoff::addEvidence(uint64_t weight) {
  if (phase_ != Phase::kTraces) return;
  evidence_ += weight;
  if (evidence_ < threshold_) return;
  phase_ = Phase::kWarming;
  left_ = kWarmCalls;
  delays_ = 0;
}

void Payoff::beginComparison() {
  phase_ = Phase::kComparing;
  traceCount_ = eagerCount_ = recordedCount_ = 0;
}

void Payoff::keepTraces() {
  phase_ = Phase::kTraces;
  evidence_ = 0;
  threshold_ = std::min(2 * threshold_, kMostPatience);
  lost_ = 0;
}

Payoff::Mode Payoff::next() {
  untimed_ = true;
  if (phase_ == Phase::kEager || phase_ == Phase::kPending) {
    if (left_-- > 0) return Mode::kEager;
    beginComparison();
  } else if (phase_ == Phase::kWarming) {
    if (left_-- > 0) return Mode::kTraces;
    beginComparison();
  } else if (phase_ == Phase::kTraces) {
    return Mode::kTraces;
  }
  untimed_ = false;
  return traceCount_ > eagerCount_ ? Mode::kEager : Mode::kTraces;
}

bool Payoff::addSample(Mode mode, uint64_t ns, Sample sample) {
  if (phase_ != Phase::kComparing) return false;  // another thread has ended the comparison
  auto& times = mode == Mode::kEager ? eagerTimes_ : traceTimes_;
  size_t& count = mode == Mode::kEager ? eagerCount_ : traceCount_;
  if (count < kMostPairs) times[count++] = ns;
  recordedCount_ += sample.recorded ? 1 : 0;
  return traceCount_ == eagerCount_ && traceCount_ > 0 && decide(sample.nativePending);
}

// A thread that has to wait for a processor takes as long as a slow trace, so one pair says nothing, and a
// few say something only where each call in one mode took longer than each in the other. Otherwise the
// medians of all pairs decide. A recording says little of the calls after it, so pairs with recordings count
// from the third on.
bool Payoff::decide(bool nativePending) {
  const size_t pairs = traceCount_;
  if (pairs < (recordedCount_ > 0 ? 3 : 2)) return false;
  traceTime_ = median(traceTimes_, pairs);
  eagerTime_ = std::max<uint64_t>(median(eagerTimes_, pairs), 1);
  const auto [bestTrace, worstTrace] = std::minmax_element(traceTimes_.begin(), traceTimes_.begin() + pairs);
  const auto [bestEager, worstEager] = std::minmax_element(eagerTimes_.begin(), eagerTimes_.begin() + pairs);
  // Every eager call beat every replay, and by a quarter in all: less may be the noise of so few pairs. At
  // the end, three percent are noise too, and the trace, which native code may still make faster, is kept.
  if (*bestTrace > *worstEager && 4 * traceTime_ > 5 * eagerTime_) return leave();
  if (*worstTrace <= *bestEager) {
    keepTraces();
    return false;
  }
  if (pairs < (nativePending && delays_ < kMostDelays ? kPendingPairs : kMostPairs)) return false;
  if (100 * traceTime_ <= 103 * eagerTime_) {
    keepTraces();
  } else if (nativePending && delays_ < kMostDelays) {
    phase_ = Phase::kPending;
    left_ = 2 * kMostPairs << delays_++;
  } else {
    return leave();
  }
  return false;
}

bool Payoff::leave() {
  phase_ = Phase::kEager;
  // Three pairs are what the next comparison may take; it is to cost about a hundredth of the calls before
  // it.
  const uint64_t excess = traceTime_ > eagerTime_ ? traceTime_ - eagerTime_ : 0;
  left_ = std::max(kFewestEagerCalls, 300 * excess / eagerTime_) << std::min(lost_, kMostDoublings);
  ++lost_;
  return true;
}

}  // namespace kintsugi
