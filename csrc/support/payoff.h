// Payoff: are the traces of a callable faster than eager mode? Decided by timing the program's own calls, a
// pair at a time: one along the traces, one in eager mode. The faster mode is kept.
//
// Traces of plain tensor operations are always faster, so nothing is timed without evidence to the contrary:
// a trace has opaque steps, or calls keep being recorded or leaving their traces. Then a few warm-up calls
// run along the traces untimed, and pairs are timed until their medians decide. If eager mode wins, the
// traces are tried again after enough calls that a trial costs about one percent of them; each loss doubles
// that number. While native code is still being compiled, a close verdict for eager mode holds for a few
// calls only.
//
// Plain data, not thread-safe. Example:
//   payoff.addEvidence(Payoff::kSteps);
//   const Payoff::Mode mode = payoff.next();
//   const uint64_t ns = timed(mode);
//   if (!payoff.isUntimed()) payoff.addSample(mode, ns, {});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kintsugi {

class Payoff {
 public:
  enum class Mode : uint8_t { kTraces, kEager };

  // Weights of evidence. The first comparison begins at `kDecisive`, later ones at more.
  static constexpr uint64_t kExit = 1, kRecorded = 2, kSteps = 8, kDecisive = 8;

  // What is special about a timed call.
  struct Sample {
    bool recorded = false;       // it was recorded, which later calls may not be
    bool nativePending = false;  // native code that may make the traces faster is still being compiled
  };

  // Calls run along the traces and are not timed.
  bool prefersTraces() const { return phase_ == Phase::kTraces; }
  // Calls run in eager mode and are not timed.
  bool prefersEager() const { return phase_ == Phase::kEager; }
  // Adds to the evidence that eager mode may be faster.
  void addEvidence(uint64_t weight);
  // The mode of the next call. Ask isUntimed() afterwards: is this call not to be timed?
  Mode next();
  bool isUntimed() const { return untimed_; }
  // A timed call took `ns` nanoseconds. True: calls run in eager mode from now on.
  bool addSample(Mode mode, uint64_t ns, Sample sample);
  // The last comparison: medians in nanoseconds.
  uint64_t eagerTime() const { return eagerTime_; }
  uint64_t traceTime() const { return traceTime_; }

 private:
  enum class Phase : uint8_t { kTraces, kWarming, kComparing, kPending, kEager };
  static constexpr size_t kMostPairs = 8;
  static constexpr size_t kPendingPairs = 4;  // for a verdict that does not hold for long
  static constexpr uint32_t kWarmCalls = 4;
  static constexpr uint32_t kMostDelays = 12;         // of a verdict, while native code is not ready
  static constexpr uint64_t kFewestEagerCalls = 200;  // calls in eager mode before the traces are tried again

  void beginComparison();
  void keepTraces();
  bool leave();
  bool decide(bool nativePending);

  std::array<uint64_t, kMostPairs> traceTimes_{}, eagerTimes_{};
  size_t traceCount_ = 0, eagerCount_ = 0, recordedCount_ = 0;
  uint64_t eagerTime_ = 0, traceTime_ = 0;
  uint64_t evidence_ = 0, threshold_ = kDecisive;
  uint64_t left_ = 0;  // calls of this phase
  uint64_t lost_ = 0;  // comparisons in a row that eager mode has won
  uint32_t delays_ = 0;
  Phase phase_ = Phase::kTraces;
  bool untimed_ = false;
};

}  // namespace kintsugi
