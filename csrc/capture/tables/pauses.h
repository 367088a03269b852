// Stretches of a call that are not recorded: C code that calls Python, an opaque step, a destructor.
//
// They nest. Frames that run in the meantime are not recorded. If one of them is the program's own, this is
// noted, since it may have changed what the trace relies on. Owned by the Recorder; the recording thread.
// Example: { Paused paused(pauses); flow = rec.execute(act, instr); }
#pragma once

#include <cstdint>

namespace kintsugi::capture {

class Pauses {
 public:
  bool isPaused() const { return depth_ > 0; }
  // After an internal error, which may have left pauses open.
  void reset() { depth_ = 0; }

  // True if code of the program's own has run in a pause since expectNoCalls().
  bool calledBack() const { return calledBack_; }
  void noteCallback() { calledBack_ = true, ++callbacks_; }
  uint64_t callbacks() const { return callbacks_; }  // so many in all
  void expectNoCalls() { calledBack_ = false; }

 private:
  friend class Paused;
  int depth_ = 0;
  bool calledBack_ = false;
  uint64_t callbacks_ = 0;
};

// One such stretch. Lives on the C stack.
class Paused {
 public:
  explicit Paused(Pauses& pauses) : pauses_(pauses) { ++pauses_.depth_; }
  ~Paused() { --pauses_.depth_; }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  Pauses& pauses_;
};

}  // namespace kintsugi::capture
