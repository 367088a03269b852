// Payoff: are the traces of a callable faster than eager mode? Decided by timing the program's own calls,
// some along the traces and some in eager mode. The faster mode is kept.
//
// Traces of plain tensor operations are always faster, so nothing is timed without evidence to the contrary:
// a trace has opaque steps, or calls keep being recorded, leaving their traces or finding none. Then a
// comparison begins, after one call along the traces that only warms up. It has two parts:
//
//  * The opening: three calls in each mode, in turns.
//  * After that, modes that are close go on in turns. If one is ahead by a tenth, calls go there, and now and
//    then two in the other one, of which the second is timed: the more seldom the slower it is. So a
//    comparison that takes long costs little. (The mode that is ahead is the warmer one then, so only turns
//    decide what is close.)
//
// It ends when all calls in one mode were faster than all in the other, by a quarter in the opening and by a
// tenth later, or with eight calls in each mode. Traces that win narrowly are compared again after a while.
// If eager mode wins, the traces are tried again after enough calls that a trial costs about one percent of
// them, and when native code that was still being compiled has become ready. Each verdict holds twice as long
// as the same one before it.
//
// Plain data, not thread-safe. Example:
//   payoff.addEvidence(Payoff::kSteps);
//   const Payoff::Mode mode = payoff.next();
//   const bool timed = !payoff.isUntimed();
//   const uint64_t ns = run(mode);
//   if (timed) payoff.addSample(mode, ns, {});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kintsugi {

class Payoff {
 public:
  enum class Mode : uint8_t { kTraces, kEager };

  // Weights of evidence. The first comparison begins at `kDecisive`, later ones at more.
  static constexpr uint64_t kExit = 1, kRecorded = 2, kMissed = 2, kSteps = 8, kDecisive = 8;

  // What is special about a timed call.
  struct Sample {
    bool recorded = false;       // it was recorded, which later calls may not be
    bool nativePending = false;  // native code that may make the traces faster is still being compiled
  };

  // Calls run along the traces and are neither timed nor counted.
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
  // A call along the traces has found one, or has been recorded.
  void hit() { misses_ = 0; }
  // A call along the traces has found none and has run in eager mode: no mode is slower. True: calls run in
  // eager mode from now on.
  bool missed();
  // Is it time to look whether native code has become ready? If it has, say so.
  bool asksForNative() const {
    return phase_ == Phase::kEager && pending_ && left_ % kLook == 0 && left_ <= nativeFrom_;
  }
  void nativeIsReady() { beginComparison(); }
  // The last comparison: medians in nanoseconds.
  uint64_t eagerTime() const { return eager_.median(); }
  uint64_t traceTime() const { return traces_.median(); }

 private:
  // kHolding: along the traces until `left_` calls have been made.
  enum class Phase : uint8_t { kTraces, kHolding, kWarming, kComparing, kEager };
  static constexpr size_t kMost = 8;     // samples in each mode that decide at the latest
  static constexpr size_t kOpening = 3;  // samples in each mode before one of them leads
  static constexpr size_t kAgreed = 5;   // samples in each mode that decide if they do not overlap
  static constexpr uint32_t kWarmCalls = 1;
  static constexpr uint32_t kMostMisses = 4;          // in a row: looking for a trace is of no use
  static constexpr uint64_t kFewestEagerCalls = 200;  // in eager mode before the traces are tried again
  static constexpr uint64_t kCallsAfterMisses = 64;   // the same, where traces were missing
  static constexpr uint64_t kCallsOnHold = 64;        // along traces that have won narrowly
  static constexpr uint64_t kLook = 16;               // calls between two looks at native code
  // Times of a call, in nanoseconds, from which on native code is tried as soon as it is there. Shorter ones
  // wait for `kFewestEagerCalls`, which take no time that anybody feels.
  static constexpr uint64_t kLong = 1'000'000;
  // Of a hundred calls' time, what probes may take longer than the leading mode would.
  static constexpr uint64_t kProbeShare = 5;
  static constexpr uint64_t kMostBetweenProbes = 200;

  // The latest times of one mode.
  struct Times {
    std::array<uint64_t, kMost> times{};
    size_t seen = 0;
    size_t count() const { return seen < kMost ? seen : kMost; }
    void add(uint64_t ns) { times[seen++ % kMost] = ns; }
    // The lower one of the two in the middle; 0 where there is none.
    uint64_t median() const;
    uint64_t best() const;
    uint64_t worst() const;
  };

  Times& of(Mode mode) { return mode == Mode::kEager ? eager_ : traces_; }
  void beginComparison();
  Mode nextCompared();
  void beginRound();
  void keepTraces();
  void leave(uint64_t calls, bool nativePending);
  bool decide(bool nativePending);

  Times traces_, eager_;
  uint64_t evidence_ = 0, threshold_ = kDecisive;
  uint64_t left_ = 0;        // calls of this phase, or of the leading mode before the next probe
  uint64_t lost_ = 0;        // comparisons in a row that eager mode has won
  uint64_t held_ = 0;        // those in a row that the traces have won narrowly
  uint64_t nativeFrom_ = 0;  // calls left from which on native code is asked for
  uint32_t recorded_ = 0;    // timed calls that were recorded, in this comparison
  uint32_t opened_ = 0;      // calls of the opening
  uint32_t probe_ = 0;       // calls of the mode that does not lead that are still to be made
  uint32_t probes_ = 0;      // in this comparison
  uint32_t misses_ = 0;      // in a row
  Mode leader_ = Mode::kTraces;
  bool pending_ = false;  // native code was being compiled at the verdict
  Phase phase_ = Phase::kTraces;
  bool untimed_ = false;
};

}  // namespace kintsugi
