// The instruction under way goes on after other frames have run inside it: what the recorder knows of it is
// kept while one lives. Whoever calls Python code in the middle of a handler, before the instruction itself,
// needs one.
//
//   pyapi::Ref<> list;
//   {
//     const Nested nested(rec);
//     list = pyapi::steal(PySequence_List(generator));
//   }
//
// Thread: the recording one, GIL held.
#pragma once

#include "capture/recorder.h"

namespace kintsugi::capture {

class Nested {
 public:
  explicit Nested(Recorder& rec)
      : state_(rec.known()), frame_(state_.frames_.current()), saved_(state_.instruction_.save()) {}
  ~Nested() {
    state_.frames_.setCurrent(frame_);
    state_.instruction_.restore(saved_);
  }
  Nested(const Nested&) = delete;

 private:
  RecorderState& state_;
  ShadowFrame* frame_;
  CurrentInstruction::Saved saved_;
};

}  // namespace kintsugi::capture
