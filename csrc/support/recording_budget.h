// RecordingBudget: limits the share of a program's time that goes into recording one callable.
//
// Recording a call takes longer than running it: a little where large operators take the time, many times
// where Python does. A program whose calls keep taking new paths would be recorded forever. So the first few
// recordings are free, and later ones run up a debt: what they take beyond a plain call. A fixed share of the
// time that passes pays the debt back, and nothing is recorded until it is paid.
//
// Plain data, not thread-safe; times are nanoseconds of a steady clock. Example:
//   if (!budget.allows(now())) return budget.ranPlain(timed(call));
//   budget.recorded(now(), timed(record));
#pragma once

#include <algorithm>
#include <cstdint>

namespace kintsugi {

class RecordingBudget {
 public:
  // Free recordings: the first call, and those that find out what varies from call to call.
  static constexpr uint32_t kFree = 4;
  // With more of them, a program whose calls all differ is slow for longer; with fewer, one that comes to a
  // few ways records them late. The same holds for the share and for what may be saved.
  // Recordings may take one part in so many of the time that passes.
  static constexpr uint64_t kShare = 20;
  // So much (in nanoseconds) may be saved up while nothing is recorded.
  static constexpr int64_t kMostSaved = 100'000'000;

  // May a call that begins now be recorded?
  bool allows(uint64_t now) const { return count_ < kFree || owed(now) <= 0; }

  // A recording that ended at `now` has taken so long.
  void recorded(uint64_t now, uint64_t ns) {
    // The first recording has to be, whatever it costs.
    debt_ = count_ == 0 ? 0 : std::max(owed(now), -kMostSaved) + excess(ns);
    unknown_ = plain_ == 0 && count_ > 0 ? unknown_ + 1 : 0;
    since_ = now;
    ++count_;
  }

  // A call without trace and recording has taken so long.
  void ranPlain(uint64_t ns) {
    if (plain_ == 0)
      debt_ -= static_cast<int64_t>(unknown_ * ns);  // recordings that nothing was known to compare with
    plain_ = plain_ == 0 ? ns : (3 * plain_ + ns) / 4;
    unknown_ = 0;
  }

 private:
  int64_t owed(uint64_t now) const { return debt_ - static_cast<int64_t>((now - since_) / kShare); }
  int64_t excess(uint64_t ns) const { return ns > plain_ ? static_cast<int64_t>(ns - plain_) : 0; }

  int64_t debt_ = 0;      // at `since_`
  uint64_t since_ = 0;    // when the last recording ended
  uint64_t plain_ = 0;    // of a call in eager mode, about; 0: none was seen yet
  uint64_t unknown_ = 0;  // recordings since the second that no plain call was there to be compared with
  uint32_t count_ = 0;
};

}  // namespace kintsugi
