// Do the traces of a callable pay? Compares the program's own calls: some along the traces, some in eager
// mode, by turns; the faster way stays.
//
// Traces of plain tensor operations always pay, so nothing is compared unless there is doubt: a trace has
// steps that are not looked into, or calls keep being recorded or leaving their traces. Then some more calls
// go along the traces untimed (they may still be recorded), and pairs of calls are timed until their medians
// tell. A callable that is left to eager mode is compared again after so many calls that the comparison costs
// about a hundredth of them; each time that it loses, that number doubles. While native code is not ready, a
// close verdict for eager mode holds for a few calls only.
//
// Plain data, not thread-safe. Example:
//   payoff.doubt(Payoff::kSteps);
//   const Payoff::Way way = payoff.next();
//   const uint64_t ns = timed(way);
//   if (!payoff.isUntimed()) payoff.ran(way, ns, {});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kintsugi {

class Payoff {
 public:
  enum class Way : uint8_t { kTraces, kEager };

  // How much a reason for doubt weighs. A comparison begins at `kDecisive`, at first.
  static constexpr uint64_t kExit = 1, kRecorded = 2, kSteps = 8, kDecisive = 8;

  // What is special about a timed call.
  struct Sample {
    bool recorded = false;       // it was recorded, which later calls may not be
    bool nativePending = false;  // native code that may make the traces faster is not ready yet
  };

  // Calls go along the traces, and need not be timed.
  bool isSettled() const { return phase_ == Phase::kTraces; }
  // Calls go to eager mode, and need not be timed.
  bool prefersEager() const { return phase_ == Phase::kEager; }
  // A reason to compare.
  void addEvidence(uint64_t weight);
  // The way of the next call. `isUntimed()`, asked behind it: this one need not be timed.
  Way next();
  bool isUntimed() const { return untimed_; }
  // A call that was not at rest took so many nanoseconds. True: the callable is left to eager mode from now
  // on.
  bool ran(Way way, uint64_t ns, Sample sample);
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
  bool judge(bool nativePending);

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
