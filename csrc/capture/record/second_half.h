// For an instruction that is two in one: BINARY_SLICE makes a slice and then takes it as an index;
// LOAD_SUPER_ATTR calls super() and then loads an attribute.
//
// The first half has no effects. While the second half runs, the stack is as between the two, and no
// instruction begins with such a stack. So snapshots describe the stack as it was before both. Lives on the C
// stack for the length of the instruction; holds what the first half drops. Thread: the recording one, with
// the GIL.
// Example: const SecondHalf half(rec, f, act); ... the first half runs ...; return half.run(second);
#pragma once

#include <optional>
#include <utility>

#include "capture/record/table.h"

namespace kintsugi::capture {

class SecondHalf {
 public:
  SecondHalf(RecordContext& rec, ShadowFrame& frame, Activation& act);
  SecondHalf(const SecondHalf&) = delete;
  SecondHalf& operator=(const SecondHalf&) = delete;
  ~SecondHalf();

  // Records the second half. The first half has run and has not raised.
  Flow run(const Instr& second) const;

 private:
  RecordContext& rec_;
  ShadowFrame& frame_;
  Activation& act_;
  StackBefore before_;
  const StackBefore* outer_;
};

}  // namespace kintsugi::capture
