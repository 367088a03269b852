#include "support/payoff.h"

#include <algorithm>

namespace kintsugi {

namespace {

// Waits are doubled each time that the same verdict is given. These bounds keep them from overflowing: nobody
// makes so many calls.
constexpr uint64_t kMostPatience = uint64_t{1} << 32;
constexpr uint64_t kMostDoublings = 12;

// In turns, so that a program whose calls get heavier, or are light and heavy in turns, has both in both
// modes.
constexpr std::array kOpeningModes = {Payoff::Mode::kTraces, Payoff::Mode::kEager,  Payoff::Mode::kEager,
                                      Payoff::Mode::kTraces, Payoff::Mode::kTraces, Payoff::Mode::kEager};

}  // namespace

uint64_t Payoff::Times::median() const {
  if (seen == 0) return 0;
  std::array<uint64_t, kMost> sorted = times;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(count());
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>((count() - 1) / 2);
  std::nth_element(sorted.begin(), middle, end);
  return std::max<uint64_t>(*middle, 1);
}

uint64_t Payoff::Times::best() const {
  return *std::min_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(count()));
}

uint64_t Payoff::Times::worst() const {
  return *std::max_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(count()));
}

void Payoff::addEvidence(uint64_t weight) {
  if (phase_ != Phase::kTraces) return;
  evidence_ += weight;
  if (evidence_ < threshold_) return;
  phase_ = Phase::kWarming;
  left_ = kWarmCalls;
}

void Payoff::beginComparison() {
  phase_ = Phase::kComparing;
  traces_ = eager_ = {};
  opened_ = probe_ = probes_ = recorded_ = 0;
  left_ = 0;
  pending_ = false;
}

Payoff::Mode Payoff::next() {
  untimed_ = true;
  if (phase_ == Phase::kTraces) return Mode::kTraces;
  if (phase_ != Phase::kComparing) {
    if (left_ > 0) {
      --left_;
      return phase_ == Phase::kEager ? Mode::kEager : Mode::kTraces;
    }
    beginComparison();
  }
  return nextCompared();
}

Payoff::Mode Payoff::nextCompared() {
  untimed_ = false;
  if (opened_ == kOpeningModes.size() && left_ == 0 && probe_ == 0) beginRound();
  if (opened_ < kOpeningModes.size()) return kOpeningModes[opened_++];
  if (left_ > 0) {
    --left_;
    return leader_;
  }
  untimed_ = probe_ == 2;  // the first one warms up
  --probe_;
  return leader_ == Mode::kEager ? Mode::kTraces : Mode::kEager;
}

// Two more turns, or six to twelve calls of the mode that is ahead, more where a probe takes long, and a
// probe. Their number varies, since what calls do may come back after a fixed number of them. If no call
// along the traces has been timed, since all were recorded, eager mode leads.
void Payoff::beginRound() {
  const uint64_t traces = traces_.median(), eager = eager_.median();
  const bool tracesLead = traces_.seen > 0 && traces <= eager;
  leader_ = tracesLead ? Mode::kTraces : Mode::kEager;
  const uint64_t fast = std::max<uint64_t>(tracesLead ? traces : eager, 1);
  const uint64_t slow = tracesLead ? eager : traces;
  if (traces_.seen > 0 && 10 * slow <= 11 * fast) {
    opened_ = kOpeningModes.size() - 4;
    return;
  }
  const uint64_t excess = slow > fast ? slow - fast : 0;
  left_ = std::max<uint64_t>(6 + 5 * probes_++ % 7,
                             std::min(kMostBetweenProbes, 2 * 100 * excess / (kProbeShare * fast)));
  probe_ = 2;
}

// A recording says little of the calls after it, so it is no sample. A program that keeps being recorded is
// left to eager mode.
bool Payoff::addSample(Mode mode, uint64_t ns, Sample sample) {
  if (phase_ != Phase::kComparing) return false;  // another thread, or a missing trace, has ended it
  if (!sample.recorded) {
    of(mode).add(ns);
  } else if (++recorded_ >= kMost) {
    leave(kFewestEagerCalls, sample.nativePending);
    return true;
  }
  return decide(sample.nativePending);
}

// A thread that has to wait for a processor takes as long as a slow trace, so a few calls say something only
// if each in one mode took longer than each in the other. The compiler's thread makes calls along the traces
// slow, too.
bool Payoff::decide(bool nativePending) {
  const size_t samples = std::min(traces_.seen, eager_.seen);
  if (samples < kOpening) return false;
  const uint64_t traces = traces_.median(), eager = eager_.median();
  const uint64_t times = samples >= kAgreed ? 110 : nativePending ? 200 : 125;
  const bool far = 100 * traces > times * eager;
  const bool lost = far && traces_.best() > eager_.worst();
  const bool won = traces_.worst() <= eager_.best();
  if (!lost && !won && samples < kMost) return false;
  // At the end, five percent are noise.
  if (won || (!lost && 100 * traces <= 105 * eager)) {
    keepTraces();
    return false;
  }
  // A few calls in each mode, of which those along the traces take longer, are what the next comparison
  // takes; it is to cost about a hundredth of the calls before it.
  const uint64_t excess = traces > eager ? traces - eager : 0;
  leave(std::max(kFewestEagerCalls, 300 * excess / eager), nativePending);
  return true;
}

void Payoff::keepTraces() {
  const bool narrow = 10 * traces_.median() > 9 * eager_.median();
  lost_ = 0;
  evidence_ = 0;
  threshold_ = std::min(2 * threshold_, kMostPatience);
  phase_ = narrow ? Phase::kHolding : Phase::kTraces;
  held_ = narrow ? held_ + 1 : 0;
  left_ = kCallsOnHold << std::min(held_, kMostDoublings);
}

void Payoff::leave(uint64_t calls, bool nativePending) {
  phase_ = Phase::kEager;
  left_ = calls << std::min(lost_, kMostDoublings);
  pending_ = nativePending;
  nativeFrom_ = eager_.median() >= kLong ? left_ : left_ - std::min(left_, kFewestEagerCalls);
  ++lost_;
  held_ = 0;
  misses_ = 0;
}

bool Payoff::missed() {
  if (phase_ == Phase::kTraces) {
    misses_ = 0;
    addEvidence(kMissed);
    return false;
  }
  if (++misses_ < kMostMisses) return false;
  if (phase_ == Phase::kHolding) beginComparison();
  if (phase_ != Phase::kComparing || traces_.seen == 0 || eager_.seen == 0) return false;
  leave(kCallsAfterMisses, false);
  return true;
}

}  // namespace kintsugi
