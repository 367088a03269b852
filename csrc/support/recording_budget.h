// How much of a program's time may go into recording. Recording a call takes longer than running it: little
// longer where its time is that of large operators, many times as long where it is Python's. A program whose
// calls keep taking new ways would be recorded for ever, so all recordings of a callable but the first few
// are paid from a share of the time that goes by: what they take beyond a plain call is a debt, and while
// there is one nothing is recorded.
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
  // A callable's first call, and some more: what they see anew is what varies from call to call.
  static constexpr uint32_t kFree = 4;
  // One part of so many of the time that goes by.
  static constexpr uint64_t kShare = 20;
  // What may be saved up while nothing is recorded.
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
